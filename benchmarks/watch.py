"""How long does it take from a save to the script's first line, in watch mode and by hand?

    python -m benchmarks.watch [edits] [live] [--sources plain light]

edits: a script imports PyTorch and a wrapper, which loads an extension: a binding (sources/) and a
kernel that includes a header. The time begins with a save of the kernel, the header or the wrapper,
and ends when the script's first line after the import of the wrapper runs:

    watch  `python -m jit_loader watch script.py`, which keeps running
    ours   `python script.py` with jit_loader.load
    torch  `python script.py` with torch.utils.cpp_extension.load
    alone  PyTorch's commands that compile the kernel and link, without Python

A run in watch mode is a fork of a process that has imported PyTorch; "ours" and "torch" start a new
interpreter, which imports it again. A way that runs older code is listed as stale and has no time.

live: an edit within the body of add2's kernel, until a script in watch mode has printed the result
of that kernel. Each run starts CUDA; "script" is a save of the script alone, "torch" is `python
script.py` with PyTorch's load of the same sources. It needs a GPU.
"""

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import jit_loader
from benchmarks import report, timing
from benchmarks.live_edits import EditedOp
from benchmarks.subject import Subject
from benchmarks.worker import environment, python_path

SOURCES = ("plain", "light", "extension")
SETTLING_SECONDS = 0.5  # so that the end of a run does not affect the next one

WAYS = ("watch", "ours", "torch", "alone")
SCRIPT = """\
import time
import torch
from wrapper import module, value
print("first line", value(), time.time(), module.__file__, flush=True)
"""
WRAPPER = """\
from {module} import load
module = load({arguments})
kWrapperValue = 0;
def value():
    return module.value() + kWrapperValue
"""


EDITS = ("kernel", "header", "wrapper")


def in_call(arguments):
    """Returns keyword arguments as Python code."""
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


class Script(Subject):
    """A script with its wrapper and its extension in a separate folder, run in one way."""

    def __init__(self, folder, source, device, way):
        folder = Path(folder, way)
        folder.mkdir()
        super().__init__(folder, source, device)
        self.way = way
        self._process = None
        self._wrapper = self.folder / "wrapper.py"
        module, arguments = "jit_loader", {"name": "extension", "sources": self.sources}
        if way == "torch":
            module = "torch.utils.cpp_extension"
            arguments["build_directory"] = str(self._torch_folder)
            arguments["extra_ldflags"] = self._torch_flags
            self._environment = self._torch_environment
        self._wrapper.write_text(WRAPPER.format(module=module, arguments=in_call(arguments)))
        self.edit_wrapper()
        (self.folder / "script.py").write_text(SCRIPT)

    def edit_wrapper(self):
        self._edit(self._wrapper, "kWrapperValue")

    def start(self):
        self.close()
        command = ["-m", "jit_loader", "watch"] if self.way == "watch" else []
        self._process = subprocess.Popen(
            [sys.executable, *command, "script.py"],
            cwd=self.folder,
            env={**self._environment, "PYTHONPATH": python_path()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self):
        """Waits until the first run has printed the script's first line."""
        value, _, path = self._first_line()
        if value != self.value:
            raise SystemExit(f"{self.way}: the first run shows {value}, not {self.value}")
        if self.way == "alone":
            self._bare = self.bare_commands(path)

    def time(self, edit):
        """Saves an edit; returns {"value", "seconds"} of the script's first line."""
        started = time.time()
        getattr(self, f"edit_{edit}")()
        if self.way == "alone":
            return self._bare() if edit != "wrapper" else {"value": self.value, "seconds": 0.0}
        if self.way != "watch":
            self.start()
        value, at, _ = self._first_line()
        return {"value": value, "seconds": at - started}

    def close(self):
        if self._process is not None:
            self._process.terminate()
            self._process.communicate()

    def _first_line(self):
        for line in self._process.stdout:
            if line.startswith("first line "):
                _, _, value, at, path = line.split()
                return int(value), float(at), path
        raise SystemExit(f"{self.way}: the script did not reach its first line")


def results(source, device, quick):
    """Yields the result of each kind of edit."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        scripts = {way: Script(folder, source, device, way) for way in WAYS}
        for script in scripts.values():
            stack.callback(script.close)
            script.start()
        for script in scripts.values():
            script.wait_until_ready()
            report.progress(f"{source}: {script.way} is ready")
        for edit in EDITS[: 1 if quick else None]:
            samples, stale = {way: [] for way in WAYS}, set()
            for way, counts in timing.turns(WAYS, 1 if quick else 5, warm_up=0 if quick else 1):
                time.sleep(SETTLING_SECONDS)
                answer = scripts[way].time(edit)
                if answer["value"] != scripts[way].value:
                    stale.add(way)
                if counts:
                    samples[way].append(answer["seconds"])
            medians = {way: timing.median(seconds) for way, seconds in samples.items()}
            yield {
                "source": source,
                "built_for": device,
                "edit": edit,
                "stale": sorted(stale),
                "medians": medians,
                "watch_beyond_alone": medians["watch"] - medians["alone"],
                **{f"{way}_over_watch": medians[way] / medians["watch"] for way in WAYS[1:3]},
                "samples": samples,
            }


LIVE_WAYS = ("watch", "script", "torch", "alone")
LIVE_SCRIPT = """\
import time
import torch
import jit_loader
from bindings.add2 import add2
zeros = torch.zeros(1024, device="cuda")
value, path = int(add2(zeros, zeros)[0]), jit_loader.loaded("add2").path
print("first line", value, time.time(), path, flush=True)
"""
TORCHS_LIVE_SCRIPT = """\
import time
import torch
from torch.utils.cpp_extension import load
module = load({arguments})
zeros = torch.zeros(1024, device="cuda")
value = int(module.forward(zeros, zeros)[0])
print("first line", value, time.time(), module.__file__, flush=True)
"""


class LiveScript(EditedOp):
    """A script that calls add2 on the GPU, beside a copy of the project.

    way: "watch" or "torch".
    """

    start, close, _first_line = Script.start, Script.close, Script._first_line

    def __init__(self, folder, way):
        super().__init__(folder / way / "project", "add2")
        self.way, self._process, variables = way, None, {}
        script = LIVE_SCRIPT
        if way == "torch":
            arguments, variables = self.torchs_call()
            script = TORCHS_LIVE_SCRIPT.format(arguments=in_call(arguments))
        self._environment = environment(self.folder / "cache", **variables)
        (self.folder / "script.py").write_text(script)
        self.start()
        path = self._first_line()[2]
        if way == "watch":
            # Not in the project: watch mode would start a run for each file that nvcc writes.
            self._bare = self.bare_commands(path, folder / "bare")

    def builds(self):
        """Returns the number of complete builds in the cache."""
        return len(list(self.folder.glob("cache/*/add2/*/[!.]*/add2.so")))

    def time(self, way):
        """Returns {"value", "seconds"} of one save, or of the compilers alone."""
        if way == "alone":
            return self._bare()
        started, before = time.time(), self.builds()
        if way == "script":
            (self.folder / "script.py").write_text(f"{LIVE_SCRIPT}# {started}\n")
        elif way == "watch":
            self.edit_body()
        else:
            self.edit_kernel()
            self.start()
        value, at, _ = self._first_line()
        while way == "watch" and self.builds() == before:
            time.sleep(0.1)  # the complete build must not affect the next time
        return {"value": value, "seconds": at - started}


def live(quick):
    """Returns the result of edits within the body of add2's kernel."""
    samples, stale = {way: [] for way in LIVE_WAYS}, set()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        scripts = {}
        for way in ("watch", "torch"):
            scripts[way] = LiveScript(Path(folder), way)
            stack.callback(scripts[way].close)
        for way, counts in timing.turns(LIVE_WAYS, 1 if quick else 5, warm_up=0 if quick else 1):
            time.sleep(SETTLING_SECONDS)
            script = scripts.get(way, scripts["watch"])
            answer = script.time(way)
            if answer["value"] != script.value:
                stale.add(way)
            if counts:
                samples[way].append(answer["seconds"])
    medians = {way: timing.median(seconds) for way, seconds in samples.items()}
    return {
        "question": "kernel body edit to its first result: add2",
        "stale": sorted(stale),
        "medians": medians,
        "samples": samples,
    }


def measure_live(options, device):
    if not torch.cuda.is_available():
        report.progress("live: PyTorch finds no CUDA GPU on this machine")
        return
    result = live(options.quick)
    report.table(result["question"], LIVE_WAYS, [times(result, LIVE_WAYS)])
    report.save("watch_live", "cuda", options, [{"built_for": device, **result}])


def times(result, ways):
    """Returns the cells with the times of a result."""
    return [
        "stale" if way in result["stale"] else report.duration(result["medians"][way])
        for way in ways
    ]


def row(result):
    ratio = "" if "torch" in result["stale"] else f"{result['torch_over_watch']:.1f}"
    return (
        result["edit"],
        *times(result, WAYS),
        report.duration(result["watch_beyond_alone"]),
        ratio,
    )


def measure_edits(options, device):
    for source in options.sources or SOURCES[: 1 if options.quick else 2]:
        found = []
        for result in results(source, device, options.quick):
            found.append(result)
            report.progress(f"{source}: {' '.join(row(result))}")
        report.table(
            f"from a save to the script's first line, {source} binding and a kernel, {device}",
            ["edit of the", *WAYS, "watch - alone", "torch / watch"],
            map(row, found),
        )
        where = "cuda" if torch.cuda.is_available() else "cpu"
        report.save(f"watch_{source}", where, options, found)


PARTS = {"edits": measure_edits, "live": measure_live}


def main():
    parser = report.parser(__doc__)
    parser.add_argument(
        "--sources", nargs="+", choices=SOURCES, help="default: plain light; quick: plain"
    )
    parser.add_argument(
        "parts",
        nargs="*",
        type=report.one_of(PARTS),
        metavar="part",
        help="default: all; quick: edits",
    )
    options = parser.parse_args()
    why_no_cuda = jit_loader.why_no_cuda()
    device = "cpu" if why_no_cuda else "cuda"
    if why_no_cuda:
        report.progress(f"built for the CPU: {why_no_cuda}")
    for part in options.parts or list(PARTS)[: 1 if options.quick else None]:
        PARTS[part](options, device)


if __name__ == "__main__":
    main()
