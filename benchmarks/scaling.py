"""How long do many processes that start together wait for an extension, cold and warm?

    python -m benchmarks.scaling --source plain

1 to 64 processes, like the ranks of a job on one machine, load one of sources/ by jit_loader.load
and by torch.utils.cpp_extension.load. In a cold start nothing is built, in a warm start everything
is. Each process has imported torch before the common start; a sample is the time from there until
the last one has the module. Each cold start has a new cache folder, so ours includes creating the
files that each cache needs once: about 0.3 s of work on 2 cores.
"""

import contextlib
import gc
import multiprocessing
import os
import sys
import tempfile
import time

from benchmarks import report, timing
from benchmarks.loading import SOURCES
from benchmarks.subject import WAYS, Subject
from benchmarks.worker import FUNCTIONS

PROCESSES, QUICK_PROCESSES = (1, 2, 4, 8, 16, 32, 64), (2,)
ROUNDS = 5
SECONDS_LIMIT = 600

# Forks of a clean process that has imported torch: 64 imports would take longer than the rest.
forkserver = multiprocessing.get_context("forkserver")


def load(way, arguments, environment, barrier, queue):
    """Loads in a process; puts (time of the start, time of the module, its value) into a queue.

    If the load fails, the error replaces the value.
    """
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = False  # as in benchmarks.worker
    # In a fork, a collection copies the pages of all of PyTorch's objects. That takes 0.1 s of CPU
    # time, which a rank does not spend: it is no fork.
    gc.freeze()
    began = time.monotonic()
    try:
        barrier.wait(SECONDS_LIMIT)
        began = time.monotonic()
        # The output of PyTorch's load would spoil the table.
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            value = FUNCTIONS[way](**arguments).value()
    except Exception as error:
        value = repr(error)
    queue.put((began, time.monotonic(), value))


def start_together(subject, way, processes):
    """Returns the seconds until each of the processes has the subject's module."""
    barrier, queue = forkserver.Barrier(processes), forkserver.Queue()
    arguments = (way, *subject.call(way), barrier, queue)
    started = [forkserver.Process(target=load, args=arguments) for _ in range(processes)]
    for process in started:
        process.start()
    # A process that is killed (usually out of memory) puts nothing into the queue.
    began, ended, values = zip(*(queue.get(timeout=2 * SECONDS_LIMIT) for _ in started))
    for process in started:
        process.join()
    for value in values:
        if value != subject.value:
            raise SystemExit(
                f"{way}, {processes} processes: {value} is not the value of the sources"
            )
    return [end - min(began) for end in ended]


def starts(source, device, processes, quick):
    """Returns the results of cold and of warm starts; the ways take turns."""
    cold, warm = ({way: [] for way in WAYS} for _ in range(2))
    for way, _ in timing.turns(WAYS, 1 if quick else ROUNDS, warm_up=0):
        with tempfile.TemporaryDirectory() as folder:
            subject = Subject(folder, source, device)
            cold[way].append(max(start_together(subject, way, processes)))
            timing.settle(quick)
            start_together(subject, way, 1)  # it may write the memo that later ones read
            warm[way].append(max(start_together(subject, way, processes)))
    about = {"built_for": device, "processes": processes}
    return [
        report.result(cold, **about, start="cold"),
        report.result(warm, **about, start="warm"),
    ]


def main():
    parser = report.parser(__doc__)
    parser.add_argument("--source", choices=SOURCES, default="plain", help="default: plain")
    options = parser.parse_args()
    device = report.built_for()
    forkserver.set_forkserver_preload(["benchmarks.loading"])
    results = []
    for processes in QUICK_PROCESSES if options.quick else PROCESSES:
        results += starts(options.source, device, processes, options.quick)
        report.progress(f"{processes} processes: done")
    report.save("scaling", report.where(), options, results)
    report.show(f"until the last process has a {options.source} extension, {device}", results)


if __name__ == "__main__":
    main()
