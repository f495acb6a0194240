"""How long do first builds take, compared with PyTorch's load?

    python -m benchmarks.cold_build --rounds 3 [question ...]

Each build runs in a new process after `import torch`, in a random order of the ways.

one op: add2 in an empty cache: four dtypes for the CPU and the GPU. PyTorch's load builds the
classic code (benchmarks/classic/), a binding that includes torch/extension.h and a kernel for
float32.

inline: load_inline of one function, with torch/extension.h precompiled by an earlier build
("precompiled"), without ("ours"), by PyTorch, and a similar function by tvm_ffi, which needs no
header of PyTorch, if it is installed; and by PyTorch and ours with the option no_implicit_headers,
for a source that includes only what it needs. inline with CUDA: the same with a kernel as well, by
ours and PyTorch.

use_pch: inline by PyTorch with this option, which precompiles torch/extension.h in the folder of
PyTorch; and by ours with the header precompiled.

extension .cpp, extension .cu: load of one file that includes torch/extension.h; with
JIT_LOADER_HEADERS=complete too ("complete").

precompile: jit_loader build --pch, with and without JIT_LOADER_HEADERS=complete.

candidates: 8 such functions at a time, as a search for a kernel compiles them: by load_many, in an
empty cache ("ours") and with torch/extension.h precompiled, and by PyTorch's load_inline, one after
the other, and in 8 processes ("torch in parallel"). On a machine with few cores load_many
precompiles the header itself.

Without nvcc, everything is built for the CPU only.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.utils.cpp_extension import remove_extension_h_precompiler_headers

from _jit_loader.build.pytorch.libraries import link_missing_names
from _jit_loader.key.toolchain import cuda_home
from _jit_loader.ops.builds import BUILDS_FOR_A_HEADER
from _jit_loader.system.jobs import parallel_jobs
from benchmarks import classic, report, timing
from benchmarks.worker import ROOT, environment, seconds_of

CPP = "torch::Tensor f{key}(torch::Tensor x) {{ return x + {key}; }}"
CUDA = """\
__global__ void kernel{key}(float* x) {{ x[threadIdx.x] += {key}; }}
torch::Tensor f{key}(torch::Tensor x) {{
  kernel{key}<<<1, 32>>>(x.data_ptr<float>());
  return x;
}}
"""
DECLARATION = "torch::Tensor f{key}(torch::Tensor x);"
NEEDED = """\
#include <ATen/ATen.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
"""
WITHOUT_HEADERS = ("no_implicit_headers", "ours no_implicit_headers")
TVM_CPP = "int f{key}(int x) {{ return x + {key}; }}"
CANDIDATES = 8
LOAD_MANY = """\
from jit_loader import load_many
outcomes = load_many({calls!r})
assert [o.error for o in outcomes] == [None] * len(outcomes), outcomes
"""
BINDING = """
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {{ module.def("f{key}", &f{key}); }}
"""
LOAD = """\
from {module} import {function}
for call in {calls!r}:
    {function}(**call)
"""
PARALLEL = """\
import os
children = []
for call in {calls!r}:
    if (child := os.fork()) == 0:
        from torch.utils.cpp_extension import load_inline
        load_inline(**call)
        os._exit(0)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
"""


class Builds:
    """The builds of one run: each has a separate folder, below the folder of the run."""

    def __init__(self, folder, device):
        self.folder, self.device = Path(folder), device
        self.precompiled = self.folder / "precompiled"  # a cache
        self._count = 0
        self._variables, self._flags = {}, []
        if device == "cuda":
            self._variables["CUDA_HOME"] = cuda_home()
            if not torch.cuda.is_available():
                named = os.environ.get("TORCH_CUDA_ARCH_LIST")
                self._variables["TORCH_CUDA_ARCH_LIST"] = named or "8.0"
            if link_missing_names(cuda_home(), [], self.folder):
                self._flags = [f"-L{self.folder}"]

    def one_op(self, way):
        if way == "torch":
            return self._run(classic.add2_script(self.device, self._new_folder(), self._flags))
        return self._run("import jit_loader; jit_loader.load_op('add2')")

    def inline(self, way, with_cuda=False, **options):
        call = {**self._call(way, with_cuda), **options}
        if way == "tvm_ffi":
            return self._run(f"import tvm_ffi.cpp; tvm_ffi.cpp.load_inline(**{call!r})")
        if way.endswith("no_implicit_headers"):
            source = NEEDED + call["cpp_sources"].replace("torch::", "at::")
            call |= {"no_implicit_headers": True, "cpp_sources": source}
        return self._load("load_inline", way, call)

    def use_pch(self, way):
        return self.inline(way, **({"use_pch": True} if way == "torch" else {}))

    def extension(self, way, suffix=".cpp"):
        folder, key = self._new_folder(), self._count + 1
        self._count = key
        text = CUDA if suffix == ".cu" else CPP
        source = folder / f"x{key}{suffix}"
        source.write_text(
            "#include <torch/extension.h>\n" + (text + BINDING).format(key=key), encoding="utf-8"
        )
        call = {"name": f"x{key}", "sources": [str(source)]}
        if way == "torch":
            call |= {"build_directory": str(folder), "extra_ldflags": self._flags}
        return self._load("load", way, call)

    def _load(self, function, way, call):
        module = (
            "torch.utils.cpp_extension" if way in ("torch", "no_implicit_headers") else "jit_loader"
        )
        variables = {"JIT_LOADER_HEADERS": "complete"} if way == "complete" else {}
        script = LOAD.format(module=module, function=function, calls=[call])
        return self._run(script, way == "precompiled", **variables)

    def candidates(self, way):
        calls = [self._call(way) for _ in range(CANDIDATES)]
        if way == "torch":
            module, function = "torch.utils.cpp_extension", "load_inline"
            return self._run(LOAD.format(module=module, function=function, calls=calls))
        if way == "torch in parallel":
            return self._run(PARALLEL.format(calls=calls))
        # If load_many does not make the header first, a process would make it during the next call.
        makes_header = BUILDS_FOR_A_HEADER * parallel_jobs() <= CANDIDATES
        setting = "1" if way == "precompiled" or makes_header else "0"
        script = LOAD_MANY.format(calls=calls)
        return self._run(script, way == "precompiled", JIT_LOADER_PCH=setting)

    def precompile(self, way):
        """Returns the seconds that it takes to precompile torch/extension.h in a new cache."""
        setting = {"JIT_LOADER_HEADERS": "complete"} if way == "complete" else {}
        return self.make_headers(self._new_folder(), **setting)

    def make_headers(self, cache, **variables):
        """Precompiles torch/extension.h; returns the seconds that it takes."""
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "jit_loader", "build", "--pch"],
            cwd=ROOT,
            env=environment(cache, PYTHONPATH=str(ROOT), JIT_LOADER_PCH="1", **variables),
            check=True,
        )
        return time.perf_counter() - started

    def _call(self, way, with_cuda=False):
        """Returns the arguments of load_inline for a new function."""
        self._count += 1
        key = self._count
        call = {"name": f"x{key}", "functions": [f"f{key}"]}
        is_torchs = way.startswith("torch") or way == "no_implicit_headers"
        if is_torchs or way == "tvm_ffi":
            call["build_directory"] = str(self._new_folder())
        if way == "tvm_ffi":
            return {**call, "cpp_sources": TVM_CPP.format(key=key)}
        if is_torchs:
            call["extra_ldflags"] = self._flags
        if with_cuda:
            call["cuda_sources"] = CUDA.format(key=key)
        return {**call, "cpp_sources": (DECLARATION if with_cuda else CPP).format(key=key)}

    def _run(self, script, precompiled=False, **variables):
        """Returns the seconds of a script; its cache is new, or that with precompiled headers."""
        cache = self.precompiled if precompiled else self._new_folder()
        variables = {"JIT_LOADER_PCH": "1" if precompiled else "0", **variables}
        return seconds_of(script, cache, **self._variables, **variables)

    def _new_folder(self):
        return Path(tempfile.mkdtemp(dir=self.folder))


def questions(builds, quick):
    """Returns {question: (function of a way, the ways)}; the first way is ours."""
    if quick:
        return {"one op": (builds.one_op, ("ours",))}
    inline = ("precompiled", "ours", "torch")
    others = ("tvm_ffi",) if importlib.util.find_spec("tvm_ffi") else ()
    extension = ("precompiled", "ours", "complete", "torch")
    found = {
        "one op": (builds.one_op, ("ours", "torch")),
        "inline": (builds.inline, (*inline, *WITHOUT_HEADERS, *others)),
        "extension .cpp": (builds.extension, extension),
        "precompile": (builds.precompile, ("ours", "complete")),
        "use_pch": (builds.use_pch, ("precompiled", "torch")),
        "candidates": (builds.candidates, (*inline, "torch in parallel")),
    }
    if builds.device == "cuda":
        found["inline with CUDA"] = (lambda way: builds.inline(way, with_cuda=True)), inline
        found["extension .cu"] = (lambda way: builds.extension(way, ".cu")), extension
    return found


def measure(question, function, ways, rounds, **about):
    """Returns the result of one question; prints each build's time."""
    samples = {way: [] for way in ways}
    for way, _ in timing.turns(ways, rounds, warm_up=0):
        samples[way].append(function(way))
        report.progress(f"{question}, {way}: {report.duration(samples[way][-1])}")
    return report.result(samples, question=question, **about)


def main():
    parser = report.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="builds per way (default: 3)")
    parser.add_argument("questions", nargs="*", help="default: all; quick: one op")
    options = parser.parse_args()
    device = report.built_for()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        builds = Builds(folder, device)
        wanted = questions(builds, options.quick)
        if unknown := set(options.questions) - set(wanted):
            parser.error(f"no question {unknown}; there are {', '.join(wanted)}")
        chosen = {name: wanted[name] for name in options.questions or wanted}
        if any("precompiled" in ways for _, ways in chosen.values()):
            builds.make_headers(builds.precompiled)
        for name, (function, ways) in chosen.items():
            rounds = 1 if options.quick else options.rounds
            if name == "use_pch":
                function("torch")  # it precompiles the header
            results.append(measure(name, function, ways, rounds, built_for=device))
            remove_extension_h_precompiler_headers()
            report.save("cold_build", report.where(), options, results)
    report.show(f"first builds, {device}", results)


if __name__ == "__main__":
    main()
