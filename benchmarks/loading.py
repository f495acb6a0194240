"""How long does a load take, compared with PyTorch's load and with the compilers alone?

    python -m benchmarks.loading [loads] [closure] [live] [live_slow]
        [--sources plain light extension] [--edited public_float add2 ...]

loads: each of three bindings (sources/) is loaded with one kernel by jit_loader.load and by
torch.utils.cpp_extension.load; the light one also by tvm_ffi, with a separate binding, if
it is installed. It is loaded from the cache, after an edit of the kernel, after an edit of a
header that only the kernel includes, and by 16 processes that start together with nothing built. A
new process has imported torch before it is timed; all other imports of a load count. "Just built"
is the first load after another process has built: the files are then younger than 2 s. A loader
that returns a module of older code is listed as stale and has no time. "alone" runs PyTorch's
commands that compile the edited kernel and link (in runs without a commit, our commands), one after
the other. Ours may be faster, because it leaves out the C++ frontend, runs nvcc's two halves in
parallel (_jit_loader/cuda/halves.py) and links stubs (build/pytorch/libraries.py).

closure: a load from the cache of a kernel that includes 10 to 10,000 generated headers.

live: a load_op of this project's ops, or a load of an extension (sources/public_*), after an edit
within a kernel's body, until the first result of that kernel, in one process. "notebook" is a cell
of a Jupyter kernel, "new process" one that has imported torch. All have started CUDA, and in watch
mode its start is not counted. "directly after the first build": while its code is compared in the
background, in a new cache each round. "with a line more": each edit adds a line, too, so that g++
preprocesses the files. Extensions are measured one after the other on an idle machine, but first
builds run in parallel.

live_slow: the same edits, beside PyTorch's load of the same sources and, in another copy of them,
beside the compilers alone. As each of PyTorch's builds takes a minute, as many copies run at a time
as there are pairs of cores. "with host code": the edit changes host code too, and makes a complete
build. Both need a GPU.
"""

import contextlib
import functools
import itertools
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import torch

from _jit_loader.cache.store import read_manifest
from _jit_loader.system.jobs import parallel_jobs
from benchmarks import report, timing
from benchmarks.live_edits import EDITS as LIVE_OPS
from benchmarks.live_edits import EXTENSIONS, edited
from benchmarks.subject import Subject, compare, ready_workers, ways_of
from benchmarks.watch import LiveScript

SOURCES = ("plain", "light", "extension")
EDITS = 5  # of each kind
LIVE_ROUNDS, FIRST_BUILDS = 10, 3
BESIDE = {"same process": 20, "beside the compilers": 10}  # rounds


def starters(subject, count=1):
    """Returns {way: [functions that start a worker]} of a subject, for ready_workers."""
    return {way: [functools.partial(subject.worker, way)] * count for way in subject.ways}


def after_builds(subject, rounds, **about):
    """Returns the result of the first load in a new process after a build in another one."""
    with ready_workers(starters(subject, 2 * rounds)) as workers:
        calls = {
            way: (lambda group=group: [group.pop().load() for _ in range(2)][1])
            for way, group in workers.items()
        }
        return compare(calls, rounds, subject, subject.edit_kernel, **about)


def in_new_processes(subject, rounds, edit=None, warm_up=0, **about):
    with ready_workers(starters(subject, rounds + warm_up)) as workers:
        calls = {way: (lambda group=group: group.pop().load()) for way, group in workers.items()}
        return compare(calls, rounds, subject, edit, warm_up, **about)


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
    rounds, about = 1 if quick else EDITS, {"source": source, "built_for": device}
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject(folder, source, device)
        built(subject, quick)
        bare = subject.bare_commands()

        def new(question, rounds, **options):
            return in_new_processes(subject, rounds, **options, **about, question=question)

        hit = "from the cache, new process"
        # The first hit may write the memo that later ones read.
        yield new(hit, 1 if quick else 7, warm_up=0 if quick else 1)
        if not quick:
            yield after_builds(subject, rounds, **about, question=f"{hit}, just built")
        edits = {"kernel": subject.edit_kernel, "header": subject.edit_header}
        for name, edit in edits.items():
            yield new(f"{name} edit, new process", rounds, edit=edit)
        with ready_workers(starters(subject)) as workers:
            calls = {way: worker.load for way, (worker,) in workers.items()}
            compare(calls, 1, subject)
            for name, edit in edits.items():
                more = {"alone": bare} if name == "kernel" else {}
                question = f"{name} edit, same process"
                yield compare({**calls, **more}, rounds, subject, edit, **about, question=question)
    yield cold(source, device, quick)


def cold(source, device, quick):
    """Returns the wall time until each process has the module.

    Each way starts from a separate folder with the same sources.
    """
    ways, (processes, rounds) = ways_of(source), (2, 1) if quick else (16, 3)
    samples, stale = {way: [] for way in ways}, set()
    for way, _ in timing.turns(ways, rounds, warm_up=0):
        with tempfile.TemporaryDirectory() as folder:
            subject = Subject(folder, source, device)
            start = functools.partial(subject.worker, way)
            with ready_workers({way: [start] * processes}) as workers:
                timing.settle(quick)
                started = time.perf_counter()
                for worker in workers[way]:
                    worker.ask()
                values = {worker.answer()["value"] for worker in workers[way]}
                samples[way].append(time.perf_counter() - started)
            if values != {subject.value}:
                stale.add(way)
    about = {"source": source, "built_for": device}
    question = f"nothing built, {processes} processes"
    return report.result(samples, question=question, stale=sorted(stale), **about)


def closure(headers, quick):
    """Returns the result of hits with a number of generated headers in the closure."""
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject(folder, "plain", "cpu", headers)
        path = built(subject, quick)["ours"]["path"]
        manifest = read_manifest(Path(path).parent)
        about = {"built_for": "cpu", "headers": headers, "files": len(manifest["files"])}
        return in_new_processes(subject, 1 if quick else 5, warm_up=1, **about)


def after_edits(op, where, calls, rounds, warm_up=0, edit=None):
    """Returns the result of loads after edits, until the kernel's first result.

    where: the part of the question that says in which program. edit: by default, of the body.
    """
    question = f"kernel body edit to its first result, {where}: {op.arguments['name']}"
    about = {"built_for": "cuda", "question": question}
    return compare(calls, rounds, op, edit or op.edit_kernel, warm_up, **about)


def live_edit(name, quick):
    """Yields the results of edits within a kernel: soon after a build, then in programs."""
    rounds, warm_up, builds = (1, 0, 1) if quick else (LIVE_ROUNDS, 1, FIRST_BUILDS)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        op = edited(folder, name)

        def build_and_edit():
            op.write(0)
            op.environment["JIT_LOADER_CACHE"] = tempfile.mkdtemp(dir=folder)
            workers.append(stack.enter_context(ready_workers({"ours": [op.worker]}))["ours"][0])
            workers[-1].load()
            op.edit_kernel()

        workers, ours = [], {"ours": lambda: workers[-1].load()}
        where = "directly after the first build"
        soon = after_edits(op, where, ours, builds, edit=build_and_edit)
        notebook = op.notebook()
        stack.callback(notebook.close)
        notebook.load()
        yield soon
        with ready_workers({"new": [op.worker] * (rounds + warm_up)}) as started:
            new = {"new process": lambda: started["new"].pop().load(), "notebook": notebook.load}
            yield after_edits(op, "other programs", ours | new, rounds, warm_up)
        yield after_edits(op, "with a line more", ours, rounds, warm_up, op.edit_kernel_and_lines)
        with contextlib.closing(LiveScript(op)) as script:
            script.start()
            script.load()
            yield after_edits(op, "watch mode", {"watch": script.load}, rounds, warm_up)


def slow_live_edit(name, beside, quick):
    """Yields the result of edits within a kernel beside another way, then that of host code."""
    rounds, builds = (1, 1) if quick else (BESIDE[beside], FIRST_BUILDS)
    with tempfile.TemporaryDirectory() as folder:
        op = edited(folder, name)
        with ready_workers(starters(op)) as workers:
            calls = {way: worker.load for way, (worker,) in workers.items()}
            compare(calls, 1, op)
            complete = {"ours": calls.pop("complete")}
            after_edits(op, "", {"ours": calls["ours"]}, builds)  # so that it has made edits
            if beside != "same process":
                calls = {"ours": calls["ours"], "alone": op.bare_commands()}
            yield after_edits(op, beside, calls, rounds)
            if "alone" in calls and name in EXTENSIONS and len(op.sources) == 1:
                yield after_edits(op, "with host code", complete, builds, edit=op.edit_host_code)


def measure_loads(options, device):
    for source in options.sources:
        results = []
        for result in loads(source, device, options.quick):
            results.append(result)
            report.progress(f"{source}: {result['question']}")
        report.save(f"loading_{source}", report.where(), options, results)
        report.show(f"load of a {source} binding and a kernel, {device}", results)


def measure_closures(options, device):
    counts = (10, 1000) if options.quick else (10, 100, 1000, 10_000)
    results = [closure(headers, options.quick) for headers in counts]
    report.save("loading_closure", report.where(), options, results)
    report.show("from the cache in a new process, as the closure grows", results)


def measure_live(options, device):
    edits = [live_edit(name, options.quick) for name in options.edited]
    with ThreadPoolExecutor(max(1, parallel_jobs() // 2)) as threads:
        results = [*threads.map(next, edits)]
    for edit in edits:  # one after the other
        results += edit
        report.progress(results[-1]["question"])
        report.save("loading_live", "cuda", options, results)  # the next one may fail
    report.show("from the save of a kernel to its first result", results)


def measure_slow(options, device):
    copies, results = itertools.product(BESIDE, options.edited), []
    with ThreadPoolExecutor(max(1, parallel_jobs() // 2)) as threads:
        edits = [slow_live_edit(name, beside, options.quick) for beside, name in copies]
        for future in as_completed([threads.submit(list, edit) for edit in edits]):
            results = sorted([*results, *future.result()], key=lambda each: each["question"])
            report.save("loading_live_slow", "cuda", options, results)  # the others take minutes
    report.show("from the save of a kernel to its first result, beside PyTorch's load", results)


PARTS = {"loads": measure_loads, "closure": measure_closures, "live": measure_live}
PARTS["live_slow"] = measure_slow


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
    edited = {"nargs": "+", "choices": [*EXTENSIONS, *LIVE_OPS], "help": "default: all"}
    parser.add_argument("--edited", **edited)
    options = parser.parse_args()
    # The other parts would take most of a quick run's time. Live edits need a GPU.
    parts = 1 if options.quick else 4 if torch.cuda.is_available() else 2
    options.parts = options.parts or list(PARTS)[:parts]
    # torch/extension.h takes most of a minute to compile on a small machine.
    options.sources = options.sources or SOURCES[: 1 if options.quick else 3]
    options.edited = options.edited or [*EXTENSIONS, *LIVE_OPS][: 1 if options.quick else None]
    device = report.built_for()
    for part in options.parts:
        PARTS[part](options, device)


if __name__ == "__main__":
    main()
