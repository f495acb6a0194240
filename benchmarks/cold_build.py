"""How long do first builds take, compared with PyTorch's load and with an older version?

    python -m benchmarks.cold_build --rounds 3 [--before FOLDER] [question ...]

Each build runs in a new process after `import torch`, in a random order of the ways.

one op: add2 in an empty cache: four dtypes for the CPU and the GPU. PyTorch's load builds the
classic code (benchmarks/classic/), a binding that includes torch/extension.h and a kernel for
float32. second op: sigmoid, if add2 is built. all ops: `jit_loader build` in an empty cache, with
the start of its processes, and beside it the same command for one op. binding edit: add2 after an
edit of its binding, in a new process. For second op and binding edit, PyTorch's headers have been
precompiled for bindings ("precompiled") or not ("ours").

inline: load_inline of one function, with torch/extension.h precompiled by an earlier build
("precompiled"), without ("ours"), by PyTorch, and a similar function by tvm_ffi, which needs no
header of PyTorch, if it is installed. inline with CUDA: the same with a kernel as well, without
tvm_ffi; the headers of the kernel's host code have then been precompiled too. second extension:
load of a source with torch/extension.h, which another extension has had precompiled.

candidates: 8 such functions at a time, as a search for a kernel compiles them: by load_many, in an
empty cache ("ours") and with torch/extension.h precompiled, and by PyTorch's load_inline, one after
the other. On a machine with few cores load_many precompiles the header itself.

--before names the folder of another version of this project, which builds its own ops. Without
nvcc, everything is built for the CPU only.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import jit_loader
from _jit_loader.build.pytorch.flags import link_missing_names
from _jit_loader.key.nvcc import cuda_home
from _jit_loader.ops.load_many import CALLS_FOR_A_HEADER
from _jit_loader.system.jobs import parallel_jobs
from benchmarks import child, report, timing
from benchmarks.subject import Project
from benchmarks.worker import ROOT, environment

SOURCES = Path(__file__).parent / "sources"
CHILD = """\
import json, sys, time
import torch
{before}
started = time.perf_counter()
{script}
print(json.dumps(time.perf_counter() - started))
"""
LOAD_OP = "import jit_loader; jit_loader.load_op({name!r}, project={project!r})"
CPP = "torch::Tensor f{key}(torch::Tensor x) {{ return x + {key}; }}"
CUDA = """\
__global__ void kernel{key}(float* x) {{ x[threadIdx.x] += {key}; }}
torch::Tensor f{key}(torch::Tensor x) {{
  kernel{key}<<<1, 32>>>(x.data_ptr<float>());
  return x;
}}
"""
DECLARATION = "torch::Tensor f{key}(torch::Tensor x);"
CANDIDATES = 8
HEADERS, HEADERS_SECONDS = "*/precompiled-headers/*", 300
# The questions whose sources include torch/extension.h.
EXTENSIONS = {"inline", "inline with CUDA", "second extension", "candidates"}
LOAD_MANY = """\
from jit_loader import load_many
outcomes = load_many({calls!r})
assert [o.error for o in outcomes] == [None] * len(outcomes), outcomes
"""
LOAD_INLINE = """\
from torch.utils.cpp_extension import load_inline
for call in {calls!r}:
    load_inline(**call)
"""
TVM_CPP = "int f{key}(int x) {{ return x + {key}; }}"


class Builds:
    """The builds of one run: each has a separate folder, below the folder of the run."""

    def __init__(self, folder, before, device):
        self.folder, self.device = Path(folder), device
        self.roots = {"ours": ROOT} | ({"before": Path(before).resolve()} if before else {})
        self.precompiled = self.folder / "precompiled"  # a cache
        self._count = 0
        self._variables, self._flags = {}, []
        if device == "cuda":
            home = cuda_home()
            self._variables["CUDA_HOME"] = home
            if not torch.cuda.is_available():
                self._variables["TORCH_CUDA_ARCH_LIST"] = (
                    os.environ.get("TORCH_CUDA_ARCH_LIST") or "8.0"
                )
            self._flags = link_missing_names(home, self.folder)
            self._flags = [f"-L{self.folder}" if flag == "-L." else flag for flag in self._flags]

    def new_folder(self):
        self._count += 1
        return self.folder / str(self._count)

    def run(self, script, root, cache, before="", **variables):
        """Returns the seconds that a script takes in a new process, after `before`."""
        variables = {**self._variables, "JIT_LOADER_PCH": "0", **variables}
        finished = subprocess.run(
            [sys.executable, "-c", CHILD.format(before=before, script=script)],
            cwd=root,
            env=environment(cache, PYTHONPATH=str(root), **variables),
            capture_output=True,
            text=True,
        )
        if finished.returncode != 0:
            raise SystemExit(f"a build failed:\n{finished.stderr}")
        return json.loads(finished.stdout.splitlines()[-1])

    def one_op(self, way):
        if way == "torch":
            kernel = "add2_classic.cu" if self.device == "cuda" else "add2_classic_cpu.cpp"
            sources = [str(child.CLASSIC / name) for name in ("add2_classic.cpp", kernel)]
            more = {"build_directory": str(self._made(self.new_folder()))}
            more["extra_ldflags"] = self._flags
            script = "from torch.utils.cpp_extension import load; "
            script += f"load('add2_classic', {sources!r}, **{more!r})"
            return self.run(script, ROOT, self.folder)
        root = self.roots[way]
        return self.run(self._load("add2", root), root, self.new_folder())

    def second_op(self, way):
        if way == "precompiled":
            project = Project(self.new_folder())
            project.precompile(**self._variables)
            script = self._load("sigmoid", project.folder)
            return self.run(script, ROOT, project.folder / "cache", JIT_LOADER_PCH="1")
        root = self.roots[way]
        return self.run(
            self._load("sigmoid", root), root, self.new_folder(), before=self._load("add2", root)
        )

    def all_ops(self, way):
        names, root = (["add2"], ROOT) if way == "one op" else ([], self.roots[way])
        # Or one op's build would leave a process behind that precompiles headers.
        variables = self._variables | ({"JIT_LOADER_PCH": "0"} if names else {})
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "jit_loader", "build", *names],
            cwd=root,
            env=environment(self.new_folder(), PYTHONPATH=str(root), **variables),
            check=True,
        )
        return time.perf_counter() - started

    def binding_edit(self, way):
        precompiled = way == "precompiled"
        root = ROOT if precompiled else self.roots[way]
        project = Project(self.new_folder(), root=root)
        script, cache = self._load("add2", project.folder), project.folder / "cache"
        if precompiled:
            project.precompile(**self._variables)
        else:
            self.run(script, root, cache)
        project.edit_binding()
        return self.run(script, root, cache, JIT_LOADER_PCH="1" if precompiled else "0")

    def inline(self, way, with_cuda=False):
        self._count += 1
        key = self._count
        sources = [DECLARATION if with_cuda else CPP, CUDA if with_cuda else None]
        cpp, cuda = (text and text.format(key=key) for text in sources)
        functions = [f"f{key}"]
        if way == "tvm_ffi":
            cpp = TVM_CPP.format(key=key)
            return self.run(
                f"import tvm_ffi.cpp; tvm_ffi.cpp.load_inline('x{key}', cpp_sources={cpp!r}, "
                f"functions={functions!r}, build_directory={str(self._made(self.new_folder()))!r})",
                ROOT,
                self.folder,
            )
        module = "torch.utils.cpp_extension" if way == "torch" else "jit_loader"
        more = {"extra_ldflags": self._flags} if way == "torch" else {}
        if way == "torch":
            more["build_directory"] = str(self._made(self.new_folder()))
        script = f"from {module} import load_inline; load_inline('x{key}', {cpp!r}, {cuda!r}, "
        script += f"functions={functions!r}, **{more!r})"
        if way == "precompiled":
            return self.run(script, ROOT, self.precompiled, JIT_LOADER_PCH="1")
        return self.run(script, ROOT, self.new_folder())

    def inline_with_cuda(self, way):
        return self.inline(way, with_cuda=True)

    def second_extension(self, way):
        self._count += 1
        sources = [str(SOURCES / name) for name in ("extension.cpp", "kernel_cpu.cpp")]
        more = {"build_directory": str(self._made(self.new_folder()))} if way == "torch" else {}
        module = "torch.utils.cpp_extension" if way == "torch" else "jit_loader"
        script = f"from {module} import load; load('x{self._count}', {sources}, **{more!r})"
        if way == "precompiled":
            return self.run(script, ROOT, self.precompiled, JIT_LOADER_PCH="1")
        return self.run(script, ROOT, self.new_folder())

    def candidates(self, way):
        calls = []
        for _ in range(CANDIDATES):
            self._count += 1
            name = f"x{self._count}"
            cpp = CPP.format(key=self._count)
            calls.append({"name": name, "cpp_sources": cpp, "functions": [f"f{self._count}"]})
        if way == "torch":
            for call in calls:
                call["build_directory"] = str(self._made(self.new_folder()))
            return self.run(LOAD_INLINE.format(calls=calls), ROOT, self.folder)
        cache = self.precompiled if way == "precompiled" else self.new_folder()
        # If load_many does not make the header first, a process would make it during the next call.
        makes_header = CALLS_FOR_A_HEADER * parallel_jobs() <= CANDIDATES
        setting = "1" if way == "precompiled" or makes_header else "0"
        return self.run(LOAD_MANY.format(calls=calls), ROOT, cache, JIT_LOADER_PCH=setting)

    def precompile(self):
        """Precompiles the headers; returns the seconds that `jit_loader build --pch` takes.

        For CUDA, a build starts to precompile those of its host code.
        """
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "jit_loader", "build", "--pch"],
            cwd=ROOT,
            env=environment(self.precompiled, PYTHONPATH=str(ROOT), JIT_LOADER_PCH="1"),
            check=True,
        )
        seconds = time.perf_counter() - started
        if self.device == "cuda":
            self.inline("precompiled", with_cuda=True)
            self._wait_for_headers()
        return seconds

    def _wait_for_headers(self):
        """Waits until the headers are made that a build has requested."""
        deadline = time.monotonic() + HEADERS_SECONDS
        while not all((slot / "header").is_dir() for slot in self.precompiled.glob(HEADERS)):
            if time.monotonic() > deadline:
                raise SystemExit(f"the headers were not made within {HEADERS_SECONDS} s")
            time.sleep(0.2)

    def _load(self, name, project):
        return LOAD_OP.format(name=name, project=str(project))

    @staticmethod
    def _made(folder):
        folder.mkdir(parents=True)
        return folder


def questions(builds, quick):
    """Returns {question: (function of a way, the ways)}; the first way is ours."""
    versions = tuple(builds.roots)
    inline = ("precompiled", "ours", "torch")
    others = ("tvm_ffi",) if importlib.util.find_spec("tvm_ffi") else ()
    found = {
        "one op": (builds.one_op, versions if quick else (*versions, "torch")),
        "second op": (builds.second_op, ("precompiled", *versions)),
        "all ops": (builds.all_ops, (*versions, "one op")),
        "binding edit": (builds.binding_edit, ("precompiled", *versions)),
        "inline": (builds.inline, inline + others),
        "second extension": (builds.second_extension, inline),
        "candidates": (builds.candidates, ("ours", "precompiled", "torch")),
    }
    if builds.device == "cuda":
        found["inline with CUDA"] = builds.inline_with_cuda, inline
    return found


def measure(question, function, ways, rounds):
    """Returns the result of one question; prints each build's time."""
    samples = {way: [] for way in ways}
    for way, _ in timing.turns(ways, rounds, warm_up=0):
        samples[way].append(function(way))
        report.progress(f"{question}, {way}: {report.duration(samples[way][-1])}")
    medians = {way: timing.median(seconds) for way, seconds in samples.items()}
    first, *others = ways
    ratios = {f"{first}_over_{way}": medians[first] / medians[way] for way in others}
    return {"question": question, "medians": medians, **ratios, "samples": samples}


def rows(results):
    """Yields the rows of the table: a way's median, and our time over it."""
    for result in results:
        first = next(iter(result["medians"]))
        for way, seconds in result["medians"].items():
            ratio = result.get(f"{first}_over_{way}")
            cell = "" if ratio is None else f"{ratio:.2f}"
            yield f"{result['question']}: {way}", report.duration(seconds), cell


def main():
    parser = report.parser(__doc__)
    parser.add_argument(
        "--rounds", type=report.positive, default=3, help="builds per way (default: 3)"
    )
    parser.add_argument("--before", metavar="FOLDER", help="an older version of this project")
    parser.add_argument("questions", nargs="*", help="default: all; quick: one op")
    options = parser.parse_args()
    why_no_cuda = jit_loader.why_no_cuda()
    device = "cpu" if why_no_cuda else "cuda"
    if why_no_cuda:
        report.progress(f"built for the CPU: {why_no_cuda}")
    rounds = 1 if options.quick else options.rounds
    asked = options.questions or (["one op"] if options.quick else None)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        builds = Builds(folder, options.before, device)
        wanted = questions(builds, options.quick)
        if unknown := set(asked or ()) - set(wanted):
            parser.error(f"no question {unknown}; there are {', '.join(wanted)}")
        chosen = {name: wanted[name] for name in asked or wanted}
        precompile_seconds = None
        if not EXTENSIONS.isdisjoint(chosen):
            precompile_seconds = builds.precompile()
            report.progress(f"precompiled in {report.duration(precompile_seconds)}")
        options.before = options.before and "another version"  # not a path of this machine
        for name, (function, ways) in chosen.items():
            result = measure(name, function, ways, rounds)
            results.append({"built_for": device, "precompile": precompile_seconds, **result})
            report.save(
                "cold_build", "cuda" if torch.cuda.is_available() else "cpu", options, results
            )
    report.table(f"first builds, {device}", ["", "median", "ours / it"], rows(results))


if __name__ == "__main__":
    main()
