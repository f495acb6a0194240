"""The sources that are loaded and edited: copies of sources/ and of this project's ops."""

import contextlib
import importlib.util
import os
import re
import secrets
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import torch

from _jit_loader.build.ninja import ninja_path
from _jit_loader.build.pytorch.libraries import link_missing_names
from _jit_loader.key.toolchain import cuda_home
from benchmarks import report, timing
from benchmarks.worker import ROOT, Worker, environment

SOURCES = Path(__file__).parent / "sources"
WAYS = ("ours", "torch")


def ways_of(source):
    """Returns the ways to load a source: tvm_ffi (apache-tvm-ffi) too, if it is installed."""
    has_tvm_ffi = source == "light" and importlib.util.find_spec("tvm_ffi")
    return (*WAYS, "tvm_ffi") if has_tvm_ffi else WAYS


class Subject:
    """A copy of one of sources/, which each way builds in a separate folder.

    It consists of a binding, a kernel, and a header that only the kernel includes. value is the
    number that a module of the current sources must return; every edit sets it to a number that no
    cache has. ways are those of ways_of().

    headers is the number of generated headers that the kernel includes as well.
    """

    def __init__(self, folder, source, device, headers=0):
        self.folder = Path(folder, "sources")
        self.folder.mkdir(parents=True)
        self._kernel = self.folder / {"cpu": "kernel_cpu.cpp", "cuda": "kernel.cu"}[device]
        self._header = self.folder / "value.h"
        binding = self.folder / f"{source}.cpp"
        for path in (binding, self._kernel, self._header):
            shutil.copy(SOURCES / path.name, path)
        self.sources = [str(binding), str(self._kernel)]
        self._values = {}
        self.edit_kernel()
        self.edit_header()
        self._generate_headers(headers)
        self._environment = environment(Path(folder, "cache"))
        # Not "torch": our loader would treat its files as possible headers for torch/extension.h.
        self._torch_folder = self.folder / "theirs"
        self._torch_folder.mkdir()
        self._torch_flags = []
        self._torch_environment = dict(self._environment)
        if device == "cuda":
            self._prepare_cuda()
        self.ways = ways_of(source)

    def _prepare_cuda(self):
        """Sets the variables that PyTorch's load needs with nvcc from pip, or without a GPU."""
        if not torch.cuda.is_available():
            architectures = os.environ.get("TORCH_CUDA_ARCH_LIST") or "8.0"
            for variables in (self._environment, self._torch_environment):
                variables["TORCH_CUDA_ARCH_LIST"] = architectures
        home = cuda_home()
        self._torch_environment["CUDA_HOME"] = home
        self._torch_flags = link_missing_names(home, [], self._torch_folder)

    def _generate_headers(self, count):
        names = [f"generated/{number}.h" for number in range(count)]
        (self.folder / "generated").mkdir()
        for number, name in enumerate(names):
            (self.folder / name).write_text(f"extern int generated_{number};\n")
        includes = "".join(f'#include "{name}"\n' for name in names)
        self._kernel.write_text(includes + self._kernel.read_text())

    @property
    def value(self):
        return sum(self._values.values())

    def edit_kernel(self):
        self._edit(self._kernel, "kKernelValue")

    def edit_header(self):
        self._edit(self._header, "kHeaderValue")

    def _edit(self, path, name):
        self._values[name] = secrets.randbelow(1 << 30)
        text = f"{name} = {self._values[name]};"
        path.write_text(re.sub(rf"{name} = \d+;", text, path.read_text()))

    def worker(self, way):
        """Starts a process that loads the sources in one way."""
        return Worker(way, *self.call(way))

    def call(self, way):
        """Returns the arguments of a way of benchmarks.worker and the environment of the call."""
        if way == "ours":
            return {"sources": self.sources}, self._environment
        if way == "tvm_ffi":
            return self._tvm_ffi_call(), self._torch_environment
        arguments = {
            "sources": self.sources,
            "build_directory": str(self._torch_folder),
            "extra_ldflags": self._torch_flags,
        }
        return arguments, self._torch_environment

    def _tvm_ffi_call(self):
        """Returns the arguments of tvm_ffi's load, which needs a binding of its own."""
        folder = self.folder / "tvm_ffi"
        if not folder.exists():
            folder.mkdir()
            shutil.copy(SOURCES / "tvm_ffi.cpp", folder / "binding.cpp")
        files = {"cpp_files": [str(folder / "binding.cpp")], "cuda_files": []}
        files["cuda_files" if self._kernel.suffix == ".cu" else "cpp_files"].append(
            str(self._kernel)
        )
        return {**files, "build_directory": str(folder)}

    def bare_commands(self):
        """Returns a function that runs PyTorch's commands that compile the kernel and link."""
        folder = self.folder / "bare"
        shutil.copytree(self.folder / "theirs", folder, symlinks=True)
        ask = [ninja_path(), "-t", "commands"]
        said = subprocess.run(ask, cwd=folder, capture_output=True, text=True, check=True).stdout
        *compilations, link = map(shlex.split, said.splitlines())
        commands = [next(words for words in compilations if self.sources[-1] in words), link]

        def run():
            started = time.perf_counter()
            for command in commands:
                subprocess.run(command, cwd=folder, capture_output=True, check=True)
            return {"seconds": time.perf_counter() - started, "value": self.value}

        return run


class Project:
    """A copy of this project's kernels/ and bindings/."""

    def __init__(self, folder):
        self.folder = Path(folder)
        for name in ("kernels", "bindings"):
            unwanted = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, self.folder / name, ignore=unwanted)


def compare(calls, rounds, subject, edit=None, warm_up=0, **about):
    """Returns the result of loading a subject in several interleaved ways, each after an edit.

    calls is {way: function that loads}. Ways that returned older code are listed as stale.
    """
    samples, stale = {way: [] for way in calls}, set()
    for way, counts in timing.turns(calls, rounds, warm_up):
        if edit is not None:
            edit()
        answer = calls[way]()
        if answer["value"] != subject.value:
            stale.add(way)
        if counts:
            samples[way].append(answer["seconds"])
    return report.result(samples, stale=sorted(stale), **about)


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
