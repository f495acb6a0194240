"""How long does a notebook take from the save of a file to the result of the next cell?

    python -m benchmarks.notebook [--sources plain light extension]

An op of two sources (sources/) and a wrapper is loaded in a Jupyter kernel with %load_ext
jit_loader. Then its kernel and a header that only the kernel includes are edited. The time is from
the saved file to the printed value, as the notebook's client sees it. "torch" is
torch.utils.cpp_extension.load in a process without a notebook that has loaded the extension before.
"alone" runs PyTorch's commands that compile the kernel and link.

benchmarks.loading live measures an edit that becomes new device code.
"""

import tempfile
import time
from pathlib import Path

from benchmarks import report
from benchmarks.subject import Subject, compare
from benchmarks.worker import python_path

SOURCES = ("plain", "light", "extension")
WRAPPER = """\
from jit_loader import load_op

module = load_op("extension")


def value():
    return module.value()
"""


SETUP = "%load_ext jit_loader\nimport jit_loader\nfrom bindings.extension import value"


class Op(Subject):
    """A subject in the layout of an op, with a wrapper."""

    def __init__(self, folder, source, device):
        super().__init__(folder, source, device)
        for name in ("kernels", "bindings"):
            (self.folder / name).mkdir()
        binding, kernel = map(Path, self.sources)
        ending = {"cpu": "_cpu.cpp", "cuda": ".cu"}[device]
        self._kernel = kernel.rename(self.folder / "kernels" / f"extension{ending}")
        self._header = self._header.rename(self.folder / "kernels" / "value.h")
        binding = binding.rename(self.folder / "bindings" / "extension.cpp")
        self.sources = [str(binding), str(self._kernel)]
        binding.with_name("extension.py").write_text(WRAPPER)
        binding.with_name("__init__.py").touch()

    def notebook(self):
        return Notebook(self.folder, self._environment)


class Notebook:
    """A Jupyter kernel in which a cell has defined a function value()."""

    def __init__(self, folder, environment, setup=SETUP):
        from jupyter_client.manager import KernelManager

        path = python_path(folder)
        self._manager = KernelManager()
        self._manager.start_kernel(cwd=str(folder), env={**environment, "PYTHONPATH": path})
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=120)
        self.run(setup)

    def run(self, code):
        """Runs a cell; returns its output and the seconds until the output is complete."""
        printed, seconds = "", None

        def take(message):
            nonlocal printed, seconds
            content = message["content"]
            if message["msg_type"] == "error":
                raise SystemExit("\n".join(content["traceback"]))
            if message["msg_type"] == "stream" and content["name"] == "stdout":
                printed += content["text"]
                seconds = time.perf_counter() - started

        started = time.perf_counter()
        self._client.execute_interactive(code, output_hook=take, timeout=600)
        return printed, seconds

    def load(self):
        printed, seconds = self.run("print(value())")
        return {"seconds": seconds, "value": int(printed)}

    def close(self):
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


def edits(source, device, quick):
    """Yields the results of one source."""
    rounds = 1 if quick else 5
    with tempfile.TemporaryDirectory() as folder:
        op = Op(folder, source, device)
        worker, notebook = op.worker("torch"), op.notebook()
        worker.wait_until_ready()
        calls = {"ours": notebook.load, "torch": worker.load}
        compare(calls, 1, op)
        path, _ = notebook.run("print(jit_loader.loaded('extension').path)")
        calls["alone"] = op.bare_commands(path.strip())
        about = {"source": source, "built_for": device}
        yield compare(calls, rounds, op, op.edit_kernel, question="kernel edit", **about)
        # PyTorch's load does not notice this edit and returns the old code.
        yield compare(calls, rounds, op, op.edit_header, question="header edit", **about)
        worker.close()
        notebook.close()


def main():
    parser = report.parser(__doc__)
    parser.add_argument("--sources", nargs="+", choices=SOURCES, help="default: all; quick: plain")
    options = parser.parse_args()
    device, results = report.built_for(), []
    for source in options.sources or SOURCES[: 1 if options.quick else 3]:
        results += edits(source, device, options.quick)
    report.save("notebook", report.where(), options, results)
    report.show("from a saved file to the cell's result", results)


if __name__ == "__main__":
    main()
