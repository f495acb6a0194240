"""How long does it take from a save to the script's first line, in watch mode and by hand?

    python -m benchmarks.watch [--sources plain light]

A script imports PyTorch and a wrapper, which loads an extension: a binding (sources/) and a kernel
that includes a header. The time begins with a save of the kernel, and ends when the script's first
line after the import of the wrapper runs:

    watch  `python -m jit_loader watch script.py`, which keeps running
    ours   `python script.py` with jit_loader.load
    torch  `python script.py` with torch.utils.cpp_extension.load
    alone  PyTorch's commands that compile the kernel and link, without Python (in runs without a
           commit, the commands are ours)

A run in watch mode is a fork of a process that has imported PyTorch; "ours" and "torch" start a new
interpreter, which imports it again. A way that runs older code is listed as stale and has no time.

benchmarks.loading live measures an edit that becomes new device code.
"""

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import report, timing
from benchmarks.subject import Subject
from benchmarks.worker import python_path

SOURCES = ("plain", "light", "extension")
SETTLING_SECONDS = 0.5  # so that the end of a run does not affect the next one

WAYS = ("watch", "ours", "torch", "alone")
SCRIPT = """\
import time, torch
from wrapper import module
print("first line", module.value(), time.time(), flush=True)
"""
# Each run starts CUDA again: not counted, as in the other ways.
LIVE_SCRIPT = """\
import time, torch
started = time.time()
torch.zeros(1, device="cuda")
cuda_seconds = time.time() - started
from benchmarks.worker import live
launched = live("ours", **{arguments})
print("first line", launched.result, time.time() - cuda_seconds, flush=True)
launched.value()
"""
WRAPPER = """\
from {module} import load
module = load({arguments})
"""


class Script(Subject):
    """A script with its wrapper and its extension in a separate folder, run in one way."""

    def __init__(self, folder, source, device, way):
        super().__init__(Path(folder, way), source, device)
        self.way = way
        self._process = None
        module, arguments = "jit_loader", {"name": "extension", "sources": self.sources}
        if way in ("torch", "alone"):
            module = "torch.utils.cpp_extension"
            arguments["build_directory"] = str(self._torch_folder)
            arguments["extra_ldflags"] = self._torch_flags
            self._environment = self._torch_environment
        text = WRAPPER.format(module=module, arguments=f"**{arguments!r}")
        (self.folder / "wrapper.py").write_text(text)
        (self.folder / "script.py").write_text(SCRIPT)

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
        value, _ = self._first_line()
        if value != self.value:
            raise SystemExit(f"{self.way}: the first run shows {value}, not {self.value}")
        if self.way == "alone":
            self._bare = self.bare_commands()

    def time_edit(self):
        """Saves an edit; returns {"value", "seconds"} of the script's first line."""
        started = time.time()
        self.edit_kernel()
        if self.way == "alone":
            return self._bare()
        if self.way != "watch":
            self.start()
        value, at = self._first_line()
        return {"value": value, "seconds": at - started}

    def close(self):
        if self._process is not None:
            self._process.terminate()
            self._process.communicate()

    def _first_line(self):
        for line in self._process.stdout:
            if line.startswith("first line "):
                value, at = line.split()[2:]
                return int(value), float(at)
        raise SystemExit(f"{self.way}: the script did not reach its first line")


class LiveScript(Script):
    """A script in watch mode that calls the kernel of an edited op or extension."""

    way = "watch"

    def __init__(self, op):
        self.folder, self._environment, self._process = op.folder, op.environment, None
        self._op = op
        (self.folder / "script.py").write_text(LIVE_SCRIPT.format(arguments=op.arguments))

    def load(self):
        value, at = self._first_line()
        time.sleep(SETTLING_SECONDS)
        return {"value": value, "seconds": at - self._op.saved}


def kernel_edits(source, device, quick):
    """Returns the result of one source."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        scripts = {way: Script(folder, source, device, way) for way in WAYS}
        for script in scripts.values():
            stack.callback(script.close)
            script.start()
        for script in scripts.values():
            script.wait_until_ready()
            report.progress(f"{source}: {script.way} is ready")
        samples, stale = {way: [] for way in WAYS}, set()
        for way, counts in timing.turns(WAYS, 1 if quick else 5, warm_up=0 if quick else 1):
            time.sleep(SETTLING_SECONDS)
            answer = scripts[way].time_edit()
            if answer["value"] != scripts[way].value:
                stale.add(way)
            if counts:
                samples[way].append(answer["seconds"])
    about = {"source": source, "built_for": device, "edit": "kernel"}
    return report.result(samples, stale=sorted(stale), **about)


def main():
    parser = report.parser(__doc__)
    parser.add_argument(
        "--sources", nargs="+", choices=SOURCES, help="default: plain light; quick: plain"
    )
    options = parser.parse_args()
    device = report.built_for()
    for source in options.sources or SOURCES[: 1 if options.quick else 2]:
        found = [kernel_edits(source, device, options.quick)]
        report.show(f"from a save to the script's first line, {source}, {device}", found)
        report.save(f"watch_{source}", report.where(), options, found)


if __name__ == "__main__":
    main()
