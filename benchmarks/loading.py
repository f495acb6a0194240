"""How long does a load take, compared with PyTorch's load and with the compilers alone?

    python -m benchmarks.loading [loads] [closure] [ops] [live] [--sources plain light extension]

loads: each of three bindings (sources/) is loaded with one kernel by jit_loader.load and by
torch.utils.cpp_extension.load; the light one also by other loaders (other_loaders.py; tvm_ffi needs
a separate binding). It is loaded from the cache, after an edit of the kernel, after an edit of a
header that only the kernel includes, and by 16 processes that start together with nothing built. A
new process has imported torch before it is timed; all other imports of a load count. The unedited
program imports load from torch.utils.cpp_extension, under `python -m jit_loader run`. "Just built"
is the first load after another process has built: the files are then younger than 2 s. A loader
that returns a module of older code is listed as stale and has no time. "compilers alone" runs
PyTorch's commands that compile the edited kernel and link. Ours may be faster, because it links
stubs (_jit_loader/build/pytorch/stubs.py).

closure: a load from the cache of a kernel that includes 10 to 10,000 generated headers.

ops: a load of this project's add2 after an edit of its binding, with PyTorch's headers precompiled,
and `python -m jit_loader build` of one op and of 8 ops (with copies of add2 if the project has
fewer) with nothing built.

live: a load_op of this project's ops, and PyTorch's load of the same sources, after an edit within
a kernel's body, until the first result of that kernel; "alone" is "compilers alone". It needs a
GPU.
"""

import contextlib
import functools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import jit_loader
from _jit_loader.cache.store import read_manifest
from benchmarks import other_loaders, report, timing
from benchmarks.live_edits import EDITS as LIVE_OPS
from benchmarks.live_edits import EditedOp
from benchmarks.subject import WAYS, CountedCompilers, Project, Subject
from benchmarks.worker import environment

SOURCES = ("plain", "light", "extension")
OPS = 8
EDITS = 5  # of each kind
LIVE_ROUNDS = 3  # PyTorch's load takes 7 s for each edit


def compare(calls, rounds, subject, edit=None, warm_up=0):
    """Returns the result of loading a subject in several interleaved ways, with an edit per round.

    calls is {way: function that loads}. Ways that returned older code are listed as stale.
    """
    samples, stale = {way: [] for way in calls}, set()
    for position, (way, counts) in enumerate(timing.turns(calls, rounds, warm_up)):
        if edit is not None and position % len(calls) == 0:
            edit()
        answer = calls[way]()
        if answer["value"] != subject.value:
            stale.add(way)
        if counts:
            samples[way].append(answer["seconds"])
    return {"stale": sorted(stale), **summary(samples)}


def summary(samples):
    medians = {way: timing.median(seconds) for way, seconds in samples.items()}
    ours = medians.get("ours")
    ratios = {f"{way}_over_ours": medians[way] / ours for way in medians if ours and way != "ours"}
    return {"medians": medians, **ratios, "samples": samples}


@contextlib.contextmanager
def ready_workers(starters):
    """Yields {name: [Worker]} for {name: [function that starts one]}; all have imported torch."""
    with contextlib.ExitStack() as stack:
        workers = {name: [start() for start in group] for name, group in starters.items()}
        everyone = [worker for group in workers.values() for worker in group]
        for worker in everyone:
            stack.callback(worker.close)
        for worker in everyone:
            worker.wait_until_ready()
        yield workers


def starters(subject, count=1, ours="ours"):
    """Returns {way: [functions that start a worker]} of a subject, for ready_workers."""
    return {
        way: [functools.partial(subject.worker, ours if way == "ours" else way)] * count
        for way in subject.ways
    }


def after_builds(subject, rounds):
    """Returns the result of the first load in a new process after a build in another one."""
    with ready_workers(starters(subject, 2 * rounds)) as workers:
        calls = {
            way: (lambda group=group: [group.pop().load() for _ in range(2)][1])
            for way, group in workers.items()
        }
        return compare(calls, rounds, subject, subject.edit_kernel)


def in_new_processes(subject, rounds, edit=None, warm_up=0, ours="ours"):
    with ready_workers(starters(subject, rounds + warm_up, ours)) as workers:
        calls = {way: (lambda group=group: group.pop().load()) for way, group in workers.items()}
        return compare(calls, rounds, subject, edit, warm_up)


def built(subject, quick):
    """Returns {way: the answer of its first load}; the loads run in parallel and are not timed."""
    with ready_workers(starters(subject)) as workers:
        for (worker,) in workers.values():
            worker.ask()
        answers = {way: worker.answer() for way, (worker,) in workers.items()}
    timing.settle(quick)
    return answers


def loads(source, device, quick):
    """Yields the results of one source."""
    rounds = 1 if quick else EDITS
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject(folder, source, device)
        bare = subject.bare_commands(built(subject, quick)["ours"]["path"])
        # The first hit may write the memo that later ones read.
        hits = in_new_processes(subject, 1 if quick else 7, warm_up=0 if quick else 1)
        yield {"question": "from the cache, new process", **hits}
        unedited = in_new_processes(subject, 1 if quick else 7, ours="unedited")
        yield {"question": "from the cache, new process, unedited program", **unedited}
        if not quick:
            first = after_builds(subject, rounds)
            yield {"question": "from the cache, new process, just built", **first}
        edits = {"kernel": subject.edit_kernel, "header": subject.edit_header}
        if quick:
            del edits["header"]
        for name, edit in edits.items():
            result = in_new_processes(subject, rounds, edit)
            yield {"question": f"{name} edit, new process", **result}
        with ready_workers(starters(subject)) as workers:
            calls = {way: worker.load for way, (worker,) in workers.items()}
            compare(calls, 1, subject)
            for name, edit in edits.items():
                more = {"alone": bare} if name == "kernel" else {}
                result = compare({**calls, **more}, rounds, subject, edit)
                yield {"question": f"{name} edit, same process", **result}
    processes = 2 if quick else 16
    result = cold(source, device, processes, 1 if quick else 3)
    yield {"question": f"nothing built, {processes} processes", **result}


def cold(source, device, processes, rounds):
    """Returns the wall time until each process has the module, and the number of compiled files.

    Each way starts from a separate folder with the same sources.
    """
    ways = (*WAYS, *other_loaders.ways(source, device))
    samples, compilations, stale = {way: [] for way in ways}, {}, set()
    for way, _ in timing.turns(ways, rounds, warm_up=0):
        with tempfile.TemporaryDirectory() as folder:
            compilers = CountedCompilers(folder)
            subject = Subject(folder, source, device, **compilers.variables)
            start = functools.partial(subject.worker, way)
            with ready_workers({way: [start] * processes}) as workers:
                started = time.perf_counter()
                for worker in workers[way]:
                    worker.ask()
                values = {worker.answer()["value"] for worker in workers[way]}
                samples[way].append(time.perf_counter() - started)
            compilations[way] = compilers.count()
            if values != {subject.value}:
                stale.add(way)
    return {"stale": sorted(stale), "compilations": compilations, **summary(samples)}


def closure(headers, quick):
    """Returns the result of hits with a number of generated headers in the closure."""
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject(folder, "plain", "cpu", headers)
        path = built(subject, quick)["ours"]["path"]
        manifest = read_manifest(Path(path).parent)
        hits = in_new_processes(subject, 1 if quick else 5, warm_up=1)
    return {"headers": headers, "files": len(manifest["files"]), **hits}


def closures(quick):
    """Yields the results, with the microseconds per file beyond the files of the first result."""
    first = None
    for headers in (10, 1000) if quick else (10, 100, 1000, 10_000):
        result = closure(headers, quick)
        first = first or result
        beyond = result["files"] - first["files"]
        extra = {
            way: 1e6 * (median - first["medians"][way]) / beyond if beyond else None
            for way, median in result["medians"].items()
        }
        yield {**result, "us_per_file_beyond": extra}


def binding_edits(quick):
    """Yields the results for add2 of this project."""
    rounds = 1 if quick else EDITS
    with tempfile.TemporaryDirectory() as folder:
        project = Project(folder)
        project.precompile()
        with ready_workers({"ours": [project.worker] * (1 + rounds)}) as workers:
            call = workers["ours"][0].load
            compare({"ours": call}, 1, project)
            result = compare({"ours": call}, rounds, project, project.edit_binding)
            yield {"question": "binding edit, same process", **result}
            later = {"ours": lambda: workers["ours"].pop().load()}
            result = compare(later, rounds, project, project.edit_binding)
            yield {"question": "binding edit, new process", **result}


def all_ops():
    """Returns the result of building one op and all ops, each time in an empty cache."""
    samples = {"one": [], "all": []}
    for which, _ in timing.turns(samples, 2, warm_up=0):
        with tempfile.TemporaryDirectory() as folder:
            project = Project(folder, OPS)
            names = ["add2"] if which == "one" else []
            started = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "jit_loader", "build", *names],
                cwd=folder,
                env=environment(project.folder / "cache", PYTHONPATH=os.getcwd()),
                check=True,
            )
            samples[which].append(time.perf_counter() - started)
            count = len(project.op_names())
    result = summary(samples)
    ratio = result["medians"]["all"] / result["medians"]["one"]
    return {"question": "nothing built", "ops": count, "all_over_one": ratio, **result}


def live_edit(name, quick):
    """Returns the result of edits within a kernel of an op, in one process for each way."""
    rounds = 1 if quick else LIVE_ROUNDS
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        op, calls = EditedOp(folder, name), {}
        for way in WAYS:
            worker = op.worker(way)
            stack.callback(worker.close)
            worker.wait_until_ready()
            path = worker.load()["path"]
            calls[way] = worker.load
            if way == "ours":
                alone = op.bare_commands(path)
        calls["alone"] = alone
        result = compare(calls, rounds, op, op.edit_kernel, warm_up=0 if quick else 1)
    return {"question": f"kernel body edit to its first result, same process: {name}", **result}


def cells(result, ways=WAYS):
    """Returns the cells of a table row: the times of a result, and PyTorch's time over ours."""
    stale, medians = result["stale"], result["medians"]
    texts = [
        "stale" if way in stale else report.duration(medians[way]) if way in medians else ""
        for way in ways
    ]
    has_ratio = "torch" in medians and not {"ours", "torch"} & {*stale}
    return [*texts, f"{result['torch_over_ours']:.1f}" if has_ratio else ""]


def measure_loads(options, device):
    for source in options.sources:
        results = []
        for result in loads(source, device, options.quick):
            results.append({"source": source, "built_for": device, **result})
            report.progress(f"{source}: {result['question']}: {' '.join(cells(result))}")
        save(f"loading_{source}", options, results)
        counted = results[-1]["compilations"]
        ways = [*counted]
        report.table(
            f"load of a {source} binding and a kernel, {device}",
            ["", *ways, "torch / ours", "compilers alone", "ours / alone"],
            [
                (result["question"], *cells(result, ways), *alone_cells(result["medians"]))
                for result in results
            ],
        )
        counts = ", ".join(f"{way} {count}" for way, count in counted.items())
        print(f"files compiled with nothing built: {counts}\n")


def alone_cells(medians):
    if "alone" not in medians:
        return "", ""
    return report.duration(medians["alone"]), f"{medians['ours'] / medians['alone']:.2f}"


def measure_closures(options, device):
    results = []
    for result in closures(options.quick):
        report.progress(f"{result['headers']} headers: {' '.join(cells(result))}")
        results.append({"built_for": "cpu", **result})
    save("loading_closure", options, results)
    report.table(
        "from the cache in a new process, as the closure grows",
        ["generated headers", "files", *WAYS, "torch / ours", *(f"{w}, us per file" for w in WAYS)],
        [
            (
                result["headers"],
                result["files"],
                *cells(result),
                *(
                    "" if (us := result["us_per_file_beyond"][way]) is None else f"{us:.2f}"
                    for way in WAYS
                ),
            )
            for result in results
        ],
    )


def measure_ops(options, device):
    results, rows = [], []
    for result in binding_edits(options.quick):
        results.append({"built_for": device, **result})
        rows.append((result["question"], cells(result, ("ours",))[0]))
    if not options.quick:
        result = all_ops()
        results.append({"built_for": device, **result})
        for which, count in {"one": 1, "all": result["ops"]}.items():
            rows.append((f"nothing built: {count}", report.duration(result["medians"][which])))
        rows.append(("nothing built: all / one", f"{result['all_over_one']:.2f}"))
    save("loading_ops", options, results)
    report.table(f"this project's ops, {device}", ["", ""], rows)


def measure_live(options, device):
    if not torch.cuda.is_available():
        report.progress("live: PyTorch finds no CUDA GPU on this machine")
        return
    results, failed = [], []
    for name in list(LIVE_OPS)[: 1 if options.quick else None]:
        try:
            result = live_edit(name, options.quick)
        except SystemExit as error:
            report.progress(f"{name}: {error}")
            failed.append(name)
            continue
        results.append({"built_for": device, **result})
        shown = [*cells(result), *alone_cells(result["medians"])]
        report.progress(f"{result['question']}: {' '.join(shown)}")
        save("loading_live", options, results)  # the next op may fail
    if failed:
        raise SystemExit(f"live: failed: {', '.join(failed)}")


def save(benchmark, options, results):
    report.save(benchmark, "cuda" if torch.cuda.is_available() else "cpu", options, results)


PARTS = {
    "loads": measure_loads,
    "closure": measure_closures,
    "ops": measure_ops,
    "live": measure_live,
}


def main():
    parser = report.parser(__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        type=report.one_of(PARTS),
        metavar="part",
        help="default: all; quick: loads",
    )
    parser.add_argument("--sources", nargs="+", choices=SOURCES, help="default: all; quick: plain")
    options = parser.parse_args()
    # The other parts would take most of a quick run's time.
    options.parts = options.parts or list(PARTS)[: 1 if options.quick else None]
    # torch/extension.h takes most of a minute to compile on a small machine.
    options.sources = options.sources or SOURCES[: 1 if options.quick else 3]
    why_no_cuda = jit_loader.why_no_cuda()
    device = "cpu" if why_no_cuda else "cuda"
    if why_no_cuda:
        report.progress(f"built for the CPU: {why_no_cuda}")
    for part in options.parts:
        PARTS[part](options, device)


if __name__ == "__main__":
    main()
