"""How long do many processes that start together wait for an extension, cold and warm?

    python -m benchmarks.scaling --source plain

1 to 64 processes, like the ranks of a job on one machine, load one of sources/ by jit_loader.load
and by torch.utils.cpp_extension.load. In a cold start nothing is built, in a warm start everything
is. Each process has imported torch before the common start, and nothing of a loader; a sample is
the time from there until the last one has the module. Each cold start has a new cache folder, so
ours includes creating the files that each cache needs once: about 0.3 s of work on 2 cores. The
sources are older than 2 s, and the cache is outside their folder: after an edit within the last 2
s, each process would read the files again. (In runs without a commit, the processes had imported a
part of jit_loader before the start, the sources were new, and the cache was in their folder.)
"""

import json
import subprocess
import sys
import tempfile

from benchmarks import report, timing
from benchmarks.loading import SOURCES
from benchmarks.subject import WAYS, Subject
from benchmarks.worker import ROOT

PROCESSES, QUICK_PROCESSES = (1, 2, 4, 8, 16, 32, 64), (2,)
ROUNDS = 5


def start_together(subject, way, processes):
    """Returns the seconds until each of the processes has the subject's module."""
    arguments, environment = subject.call(way)
    call = [sys.executable, "-m", "benchmarks.together", way, str(processes), json.dumps(arguments)]
    finished = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True)
    answers = [json.loads(line) for line in finished.stdout.splitlines()]
    if len(answers) != processes or {value for _, _, value in answers} != {subject.value}:
        raise SystemExit(f"{way}, {processes} processes: {answers}\n{finished.stderr}")
    first = min(began for began, _, _ in answers)
    return [ended - first for _, ended, _ in answers]


def starts(source, device, processes, quick):
    """Returns the results of cold and of warm starts; the ways take turns."""
    samples = {start: {way: [] for way in WAYS} for start in ("cold", "warm")}
    for way, _ in timing.turns(WAYS, 1 if quick else ROUNDS, warm_up=0):
        with tempfile.TemporaryDirectory() as folder:
            subject = Subject(folder, source, device)
            for times in samples.values():
                timing.settle(quick)
                times[way].append(max(start_together(subject, way, processes)))
    about = {"built_for": device, "processes": processes}
    return [report.result(times, **about, start=start) for start, times in samples.items()]


def main():
    parser = report.parser(__doc__)
    parser.add_argument("--source", choices=SOURCES, default="plain", help="default: plain")
    options = parser.parse_args()
    device = report.built_for()
    results = []
    for processes in QUICK_PROCESSES if options.quick else PROCESSES:
        results += starts(options.source, device, processes, options.quick)
        report.progress(f"{processes} processes: done")
    report.save("scaling", report.where(), options, results)
    report.show(f"until the last process has a {options.source} extension, {device}", results)


if __name__ == "__main__":
    main()
