"""Writes the README's picture and figures, from the last runs on a machine with a GPU."""

from benchmarks import timing
from benchmarks.pages.performance import LIVE_EDITS, find, largest
from benchmarks.pages.results import Comparison, newest, our_way, runs, table
from benchmarks.report import duration

BEGIN = "<!-- {}: written by python -m benchmarks.pages -->"
END = "<!-- end of {} -->"
LOADS = [
    ("load, unchanged, new process", "extension", "from the cache, new process"),
    ("kernel edit, new process", "extension", "kernel edit, new process"),
    ("kernel edit, same process", "extension", "kernel edit, same process"),
]
BINDINGS = {"extension": "torch/extension.h", "light": "light", "plain": "plain"}
KERNELS = ("trilinear, F = 64", "two_norm backward")


def loads(of_device):
    """Returns the results that the picture of a device shows, from {benchmark: Result}."""
    names = ("loading_extension", "loading_light")
    return [of_device[name] for name in names if name in of_device]


def picture(drawn):
    """Returns the file name of the picture of loads()."""
    return f"loads-{drawn[0].path.stem.partition('-')[2]}.png"


def with_figures(text, by_device):
    """Returns the README's text with both blocks; raises ValueError if a marker is missing."""
    text = with_block(text, "picture", picture_block(by_device))
    return with_block(text, "figures", figures_block(by_device))


def with_block(text, name, lines):
    before, begin, rest = text.partition(BEGIN.format(name))
    _, end, after = rest.partition(END.format(name))
    if not (begin and end):
        raise ValueError(f"README.md has no lines {BEGIN.format(name)} and {END.format(name)}")
    return "\n".join([before + begin, "", *lines, "", end]) + after


def found(by_device, *benchmarks):
    """Returns {benchmark: Result} of the last run on a GPU, or on a CPU if there is none."""
    return newest(by_device, "gpu", benchmarks) or newest(by_device, "cpu", benchmarks)


def picture_block(by_device):
    drawn = loads(found(by_device, "loading_extension", "loading_light"))
    if not drawn:
        return []
    return [
        f"![Times from a saved file to the loaded module](benchmarks/results/{picture(drawn)})",
    ]


def figures_block(by_device):
    rows, used = [], {}
    for section in (load_rows, live_rows, watch_rows, kernel_rows, call_rows):
        more, results = section(by_device)
        rows += more
        used |= results
    columns = ["", "binding", "ours", "PyTorch", "torch.compile", "PyTorch / ours"]
    return [*table(columns, rows), runs([used])] if rows else []


def row(about, binding, samples, other, compiled=None):
    """Returns a row, with the shortest time in bold if its difference from ours is conclusive."""
    ours = our_way(samples)
    ways = [ours, other, compiled if compiled in samples else None]
    best = min(filter(None, ways), key=lambda way: timing.median(samples[way]))
    rivals = [way for way in ways if way and way != ours]
    clear = best != ours and Comparison(samples, best, ours=ours).conclusive
    if best == ours:
        clear = all(Comparison(samples, way, ours=ours).conclusive for way in rivals)
    cells = [duration(timing.median(samples[way])) if way else "" for way in ways]
    cells = [f"**{cell}**" if way == best and clear else cell for way, cell in zip(ways, cells)]
    return [about, binding, *cells, Comparison(samples, other, ours=ours)]


def load_rows(by_device):
    results = found(by_device, *(f"loading_{source}" for _, source, _ in LOADS))
    rows = []
    for about, source, question in LOADS:
        each = find(results, f"loading_{source}", question=question)
        if each and not {"ours", "torch"} & set(each["stale"]):
            rows.append(row(about, BINDINGS[source], each["samples"], "torch"))
    return rows, results


def live_rows(by_device):
    results = found(by_device, "loading_live")
    benchmark, wanted = LIVE_EDITS["add2"]
    each = find(results, benchmark, **wanted)
    about = "edit of add2's kernel to its first result on the GPU, same process"
    return [row(about, "bindings/op.h", each["samples"], "torch")] if each else [], results


def watch_rows(by_device):
    results = found(by_device, "watch_plain")
    each = find(results, "watch_plain", edit="kernel")
    about = "kernel edit to a script's first line: a warm fork (watch) against a new interpreter"
    return [row(about, "plain", each["samples"], "torch")] if each else [], results


def kernel_rows(by_device):
    results = found(by_device, "bandwidth")
    rows = []
    for name in KERNELS:
        if each := largest(results, name):
            about = f"{name}, 2^{each['n'].bit_length() - 1} float32"
            rows.append(row(about, "bindings/op.h", each["samples"], "eager", "compiled"))
    return rows, results


def call_rows(by_device):
    results = found(by_device, "call_overhead")
    wanted = {"workload": "add2", "question": "grad, forward and backward"}
    each = find(results, "call_overhead", **wanted)
    about = "add2 on 64 floats, forward and backward"
    if not each:
        return [], results
    return [row(about, "bindings/op.h", each["samples"], "torch", "torch compiled")], results
