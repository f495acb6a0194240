"""The losses, for the end of docs/performance.md: results in which another way is faster."""

from benchmarks.pages.results import Comparison, our_way, table

NOTABLE = 0.97
ABOUT = """\
Results in which x takes at least 3% less time than ours, and the interval does not contain 1: their
lowest x / ours, and their subjects. [Reasons](gpu.md#where-it-is-slower-than-the-best-and-why)."""
# Ways that are not an alternative: a copy, a part of ours, the compilers without a loader, a save
# of the script, ours before a header is precompiled.
NO_ALTERNATIVE = (
    *("copy", "module", "alone", "script", "before", "one op", "one", "all", "bindings", "ours"),
)


def section(by_device):
    """Returns the section's lines of Markdown."""
    found = {}  # {(kind of result, other way): {device: [(subject, Comparison)]}}
    for device, results in by_device.items():
        for benchmark, result in results.items():
            for each in result["results"]:
                for other, comparison in compared(benchmark, each):
                    if comparison.loses and comparison.ratio < NOTABLE:
                        kind, subject = described(benchmark, each)
                        of_device = found.setdefault((kind, other), {}).setdefault(device, [])
                        of_device.append((subject, comparison))
    rows = [
        [kind, other, *(cell(of_device.get(device, ())) for device in by_device)]
        for (kind, other), of_device in found.items()
    ]
    return [*ABOUT.splitlines(), "", *table(["", "x", *by_device], rows)]


def compared(benchmark, each):
    """Yields (other way, Comparison) of a result."""
    samples, stale = each["samples"], set(each.get("stale") or ())
    if benchmark == "call_overhead":
        yield "torch", Comparison(samples, "torch")
        return
    ours = our_way(samples)
    for way in samples:
        valid = way != ours and way not in NO_ALTERNATIVE and not {way, ours} & stale
        if valid and any(samples[way]) and any(samples[ours]):
            yield way, Comparison(samples, way, ours=ours)


def described(benchmark, each):
    """Returns the kind of a result, and its subject."""
    if "n" in each:
        return "kernels", each["workload"]
    if benchmark == "call_overhead":
        return f"calls, {each['question']}", each["workload"]
    if "size" in each:
        return f"LLTM, {each['question']}", each["size"]
    if "start" in each:
        return f"{each['start']} start of processes", str(each["processes"])
    kind = benchmark if benchmark == "cuda_kernel" else benchmark.replace("_", ", ")
    return kind, each.get("question") or each.get("edit") or "load"


def cell(found):
    """Returns the lowest ratio of all results, and their subjects."""
    if not found:
        return ""
    subjects = "; ".join(dict.fromkeys(subject for subject, _ in found))
    return f"{min((comparison for _, comparison in found), key=lambda c: c.ratio)}: {subjects}"
