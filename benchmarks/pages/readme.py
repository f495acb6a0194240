"""Writes the README's figures, the most important results of each device, between two markers."""

from benchmarks import timing
from benchmarks.pages.results import Comparison, table
from benchmarks.report import duration

BEGIN = "<!-- figures: written by python -m benchmarks.pages -->"
END = "<!-- end of figures -->"
# For a kernel and a binding that includes torch/extension.h.
LOADS = {
    "from the cache, new process": "loading an extension, unchanged, in a new process",
    "from the cache, new process, unedited program": "the same by a program that is not edited",
    "from the cache, new process, just built": "the same in the first process after a build",
    "kernel edit, same process": "loading it after an edit of its kernel, in the same process",
    "nothing built, 16 processes": "loading it in 16 processes, with nothing built",
}
KERNELS = ("add2", "sigmoid", "two_norm", "trilinear, F = 64")


def with_figures(text, by_device):
    """Returns the README's text with the figures; raises ValueError if a marker is missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"README.md has no lines {BEGIN} and {END} for the figures")
    block = []
    for device, results in by_device.items():
        if rows := list(figures(results)):
            block += table([device, "ours", "PyTorch", "PyTorch / ours"], rows)
    return "\n".join([before + BEGIN, "", *block, END]) + after


def figures(results):
    """Yields the rows of one device's table."""
    for name, number in (("bandwidth", "n"), ("call_overhead", None), ("lltm", None)):
        for each in results[name]["results"] if name in results else ():
            if number and not chosen(each, results[name]["results"]):
                continue
            if name == "call_overhead" and each["workload"] != "add2":
                continue
            if each.get("question", "step") in ("forward", "backward", "grad, forward"):
                continue
            yield described(name, each), *pair(each["samples"])
    for each in results["loading_extension"]["results"] if "loading_extension" in results else ():
        if each["question"] in LOADS and not {"ours", "torch"} & {*each["stale"]}:
            yield LOADS[each["question"]], *pair(each["samples"])
    for each in results["watch_plain"]["results"] if "watch_plain" in results else ():
        if each["edit"] != "header":
            about = f"from a save of the {each['edit']} to the script's first line, in watch mode"
            samples = {"ours": each["samples"]["watch"], "torch": each["samples"]["torch"]}
            yield about, *pair(samples)


def chosen(each, results):
    """Tells whether a kernel's result is for float32 at the largest size."""
    same = [e["n"] for e in results if (e["workload"], e["dtype"]) == (each["workload"], "float32")]
    return each["workload"] in KERNELS and each["dtype"] == "float32" and each["n"] == max(same)


def described(name, each):
    if name == "bandwidth":
        return f"{each['workload']}, 2^{each['n'].bit_length() - 1} float32"
    if name == "lltm":
        return "LLTM step, batch {}, {} features, state {}".format(*each["batch_features_state"])
    return f"a call of add2 on 64 floats, {each['question']}"


def pair(samples):
    other = "eager" if "eager" in samples else "torch"
    medians = [duration(timing.median(samples[way])) for way in ("ours", other)]
    return *medians, Comparison(samples, other)
