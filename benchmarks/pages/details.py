"""The pages beside the results: a page for each script, which has every result, and the goals."""

from benchmarks import scripts, timing
from benchmarks.pages import goals, readme
from benchmarks.pages.results import Comparison, belongs, our_way, table
from benchmarks.report import duration
from benchmarks.report import spread as interquartile_range

READING = """\
Written by `python -m benchmarks.pages`; [how to read it](../../docs/performance.md#method), [the
goals](goals.md). A spread is the range of the middle half of the samples, with their number in
parentheses."""
OF_COPY = """\
"of copy" is GB/s divided by the GB/s of a clone of as many bytes into new memory, which also
allocates; if a call on a GPU is host-bound, "of copy" compares the cost of the calls."""
WAYS = ("eager", "compiled", "reduce-overhead", "classic")
PARTS = ("alone", "script", "one op")  # ways that do less than ours
NAMES = {"ours": "ours", "torch": "torch", "alone": "compilers alone"}


def pages(by_device):
    """Returns {name of a file beside the results: its text}."""
    texts = {f"{script}.md": page(script, by_device) for script in SECTIONS}
    texts = {name: text for name, text in texts.items() if text}
    return {**texts, "goals.md": "\n".join(["# Goals", "", *goal_table()]).rstrip() + "\n"}


def page(script, by_device):
    """Returns the text of a script's page, or None if it has no result."""
    lines = [f"# {script}", "", READING, "", *scripts.docstring(script).splitlines(), ""]
    empty = len(lines)
    for device, results in by_device.items():
        parts = [results[name] for name in sorted(results) if belongs(name, script)]
        lines += [f"## {device}", ""] if parts else []
        if script == "loading" and (drawn := readme.loads(results)):
            lines += [f"![seconds from save to result]({readme.picture(drawn)})", ""]
        for part in parts:
            lines += [f"{part.on}, {part['machine']['cxx']}; {part.at}.", ""]
            lines += SECTIONS[script](part)
    return "\n".join(lines).rstrip() + "\n" if len(lines) > empty else None


def goal_table():
    """Returns the goals as lines of Markdown."""
    names = {"gpu": "GPU", "cpu": "CPU"}
    rows = [
        (f"{names[kind]}: {workload}", wanted["eager"], wanted.get("compiled", ""))
        for kind, workloads in goals.LARGE.items()
        for workload, wanted in workloads.items()
    ]
    rows += [(f"GPU: {name}, at 2^20 and 2^24", g["eager"], "") for name, g in goals.MIDDLE.items()]
    rows += [
        (f"GPU: a step of LLTM, {size}", wanted.get("eager", ""), wanted["compiled"])
        for size, wanted in goals.LLTM.items()
    ]
    columns = ["at the largest size, at least", "eager / ours", "compiled / ours"]
    one, several = goals.CALLS["no grad"]
    with_gradient = goals.CALLS["grad, forward"][0]
    alone = f"{goals.NOTEBOOK_OVER_ALONE} times the compilers' time + {goals.NOTEBOOK_SECONDS:g} s"
    return [
        *table(columns, rows),
        "On a GPU, reduce-overhead / ours must be at least "
        f"{goals.LLTM['small']['reduce-overhead']} in a small step of LLTM. In a call on 64 "
        f"floats, torch / ours must be at least {one:g} without a gradient and {with_gradient:g} "
        f"with one for {', '.join(goals.ONE_OPERATION)}, and {several:g} without one for the other "
        f"ops. A kernel edit in a notebook may take {alone}, a save in watch mode "
        f"{goals.WATCH_BEYOND_ALONE} s more than the compilers, an edit of the body of an op's "
        f"kernel {goals.LIVE_OVER_ALONE} times the time of the compilers alone, in watch mode too.",
        "",
    ]


def spread(samples):
    return f"{interquartile_range(samples)} ({len(samples)})"


def verdicts(compared):
    return "; ".join(filter(None, (comparison.verdict for comparison in compared.values())))


def bandwidth(result):
    largest = {}
    for each in result["results"]:
        key = each["workload"], each["dtype"]
        largest[key] = max(largest.get(key, 0), each["n"])
    parts = {"large": [], "middle": [], "small": [], "others": []}
    for each in result["results"]:
        if each["n"] == largest[each["workload"], each["dtype"]]:
            parts["large"].append(each)
        elif each["n"] in (2**20, 2**24):
            parts["middle"].append(each)
        elif each["n"] == 2**10 and each["dtype"] == "float32":
            parts["small"].append(each)
        else:
            parts["others"].append(each)
    parts["others"] = [each for each in parts["others"] if verdicts(comparisons(each, {}))]
    middle = {"gpu": "2^20 and 2^24 (most gradients are still bound by the host)", "cpu": "2^20"}
    headings = {
        "large": "At the largest size (trilinear: n/256 cells of 64 features, n/1024 of 256):",
        "middle": f"At {middle[result.kind]}:",
        "small": "At 2^10 in float32:",
        "others": "The other results in which another way is faster:",
    }
    goal_of = {"large": goals.LARGE[result.kind]}
    if result.kind == "gpu":
        goal_of["middle"] = goals.MIDDLE
    lines = [f"![bandwidth against size]({result.path.stem}.png)", "", OF_COPY, ""]
    for part, results in parts.items():
        if results:
            lines += [headings[part], "", *kernels(results, goal_of.get(part, {}))]
    return lines


def comparisons(each, wanted):
    """Returns {way: Comparison} of a kernel's result; wanted has the goals of some ways."""
    return {
        way: Comparison(each["samples"], way, wanted.get(way))
        for way in WAYS
        if way in each["samples"]
    }


def kernels(results, goal_of):
    ways = [way for way in WAYS if any(way in each["samples"] for each in results)]
    rows = []
    for each in results:
        compared = comparisons(each, goal_of.get(each["workload"], {}))
        ours = each["samples"]["ours"]
        rows.append(
            (
                f"{each['workload']}, {each['dtype']}, 2^{each['n'].bit_length() - 1}",
                duration(timing.median(ours)),
                spread(ours),
                f"{each['gb_per_s']['ours']:.4g}",
                f"{each['gb_per_s']['ours'] / each['gb_per_s']['copy']:.0%}",
                *(compared.get(way, "") for way in ways),
                verdicts(compared),
            )
        )
    columns = ["", "ours", "spread", "GB/s", "of copy", *(f"{way} / ours" for way in ways), ""]
    return table(columns, rows)


def call_overhead(result):
    rows = []
    for each in result["results"]:
        samples = each["samples"]
        one, several = goals.CALLS[each["question"]]
        goal = one if each["workload"] in goals.ONE_OPERATION else several
        goal = goal if result.kind == "gpu" else None
        verdict_of = {"ours": Comparison(samples, "torch", goal).verdict}
        if "torch compiled" in samples:
            compiled = Comparison(samples, "torch compiled", ours="ours compiled")
            verdict_of["ours compiled"] = compiled.verdict
        for way in samples:
            rows.append(
                (
                    f"{each['workload']}, {each['question']}: {way}",
                    duration(timing.median(samples[way])),
                    spread(samples[way]),
                    "" if way == "torch" else Comparison(samples, "torch", ours=way),
                    verdict_of.get(way, ""),
                )
            )
    return table(["", "median", "spread", "torch / this", ""], rows)


def lltm(result):
    rows = []
    for each in result["results"]:
        question = each["question"]
        has_goal = result.kind == "gpu" and question == "step"
        wanted = goals.LLTM[each["size"]] if has_goal else {}
        for way, samples in each["samples"].items():
            other = way != "ours"
            comparison = Comparison(each["samples"], way, wanted.get(way)) if other else None
            rows.append(
                (
                    "B{} F{} S{}".format(*each["batch_features_state"]) + f", {question}: {way}",
                    duration(timing.median(samples)),
                    spread(samples),
                    comparison or "",
                    comparison.verdict if comparison else "",
                )
            )
    return table(["", "median", "spread", "this / ours", ""], rows)


def cold_build(result):
    # Results from before 2026-11-24 have only one question.
    return (times if "question" in result["results"][0] else of_load_op)(result)


def of_load_op(result):
    rows = []
    for each in result["results"]:
        for way, samples in each["samples"].items():
            other = way != "load_op"
            ratio = Comparison(each["samples"], way, ours="load_op") if other else ""
            name = {"torch": "torch's load of the classic code"}.get(way, way)
            rows.append((name, duration(timing.median(samples)), spread(samples), ratio))
    return table(["", "median", "spread", "this / load_op"], rows)


def times(result):
    """Returns a table with a row for each way to load or to show a change."""
    rows = []
    for each in result["results"]:
        first = our_way(each["samples"])
        about = each.get("question") or each.get("edit") or f"{each['files']} files in the closure"
        source = f"{each['source']}: " if "source" in each else ""
        for way, samples in each["samples"].items():
            label = f"{source}{about}: {NAMES.get(way, way)}"
            if not any(samples):
                continue  # a wrapper has nothing to compile
            if way in each.get("stale", ()):
                rows.append((label, "stale", "", "", ""))
                continue
            comparison = Comparison(each["samples"], way, ours=first) if way != first else ""
            verdict = comparison.verdict if comparison and way not in PARTS else ""
            if way == first:
                verdict = beyond_compilers(result["benchmark"], each)
            median = duration(timing.median(samples))
            rows.append((label, median, spread(samples), comparison, verdict))
    return table(["", "median", "spread", "this / the first", ""], rows)


def beyond_compilers(benchmark, each):
    """Returns a note if the time from a save to its result is above the goal."""
    medians = each["medians"]
    if benchmark == "notebook" and each["question"] == "kernel edit":
        most = goals.NOTEBOOK_OVER_ALONE * medians["alone"] + goals.NOTEBOOK_SECONDS
        return "" if medians["ours"] <= most else f"above the goal, {duration(most)}"
    if benchmark.endswith("_live"):
        most = goals.LIVE_OVER_ALONE * medians["alone"]
        ours = medians[our_way(each["samples"])]
        return "" if ours <= most else f"above the goal, {duration(most)}"
    if benchmark.startswith("watch"):
        most = medians["alone"] + goals.WATCH_BEYOND_ALONE
        return "" if medians["watch"] <= most else f"above the goal, {duration(most)}"
    return ""


def scaling(result):
    rows = []
    for each in result["results"]:
        about = f"{each['start']} start, {each['processes']} processes"
        for way, samples in each["samples"].items():
            comparison = Comparison(each["samples"], way) if way != "ours" else None
            rows.append(
                (
                    f"{about}: {way}",
                    duration(timing.median(samples)),
                    spread(samples),
                    comparison or "",
                    comparison.verdict if comparison else "",
                )
            )
    plot = f"![seconds against processes]({result.path.stem}.png)"
    return [
        plot,
        "",
        *table(["", "until the last process has it", "spread", "this / ours", ""], rows),
    ]


SECTIONS = {
    "bandwidth": bandwidth,
    "call_overhead": call_overhead,
    "lltm": lltm,
    "cold_build": cold_build,
    "hit": of_load_op,
    "cuda_kernel": times,
    "loading": times,
    "scaling": scaling,
    "notebook": times,
    "watch": times,
}
