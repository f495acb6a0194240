"""Each message in docs/troubleshooting.md is one that jit_loader prints."""

import doctest
import os
import re
import subprocess
import sys
import sysconfig

import pytest
import torch

import jit_loader
from _jit_loader import loaded
from _jit_loader.build import build
from _jit_loader.cache import cache_folder, lock, pruning, registrations
from _jit_loader.commands import check, doctor
from _jit_loader.cuda import nvrtc, ptxas
from _jit_loader.key import toolchain
from tests.docs.markdown import ROOT, Page
from tests.support.extension import binding
from tests.support.mounts import mount

PAGE = Page("docs/troubleshooting.md")
BLOCKS = [block for block in PAGE.blocks if block.language == "text"]
CXX = os.environ.get("CXX", "c++")
SHOWN = {}  # heading: the function that produces the messages below it


def shown_under(heading):
    def decorate(function):
        SHOWN[heading] = function
        return function

    return decorate


# The error's name and text are CUDA's.
LAUNCH_ERROR = """\
#include "bindings/shared/launch_error_message.h"
int main() {
  const kernels::LaunchError error(
      "void kernels::elementwise(Cuda, ...)", "cudaErrorNoKernelImageForDevice",
      "no kernel image is available for execution on the device", false);
  puts(bindings::launch_error_message("add2", error).c_str());
}
"""


class Fault:
    """Causes failures, usually of a load of the op add2, and returns their messages."""

    def __init__(self, tiny, monkeypatch, folder, capsys, request):
        self.tiny, self.monkeypatch, self.folder = tiny, monkeypatch, folder
        self._capsys, self.request = capsys, request
        self.source = str(tiny.write("kernels/add2_cpu.cpp", ""))
        tiny.write("pyproject.toml", "")  # marks the folder as a project

    def message_of_load(self, *sources, **options):
        return self.message_of(lambda: jit_loader.load("add2", [*sources, self.source], **options))

    def message_of(self, function):
        with pytest.raises((RuntimeError, OSError, ValueError)) as error:
            function()
        return str(error.value).replace(str(self.tiny.folder), "/home/me/project")

    def message_of_call(self, declaration, call, **options):
        text = binding("add2", f"{declaration}\n", f"{call};")
        return self.message_of_load(str(self.tiny.write("bindings/add2.cpp", text)), **options)

    def printed(self):
        """Returns the text that was printed on stderr."""
        return self._capsys.readouterr().err

    def program(self, name, output):
        """Writes a program that prints the output; returns its path."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n")
        path.chmod(0o755)
        return str(path)


@pytest.fixture(autouse=True)
def own_loads(monkeypatch):
    """Keeps the modules that are named add2 here out of the other tests in this process."""
    monkeypatch.setattr(loaded, "last", dict(loaded.last))


@pytest.fixture
def fault(tiny, monkeypatch, tmp_path, capsys, request):
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    return Fault(tiny, monkeypatch, tmp_path, capsys, request)


def test_every_message_of_the_page_is_tested():
    assert SHOWN.keys() == {block.heading for block in BLOCKS}


@pytest.mark.parametrize("heading", SHOWN)
def test_message_on_the_page_is_the_printed_one(fault, heading):
    messages = SHOWN[heading](fault)
    messages = [messages] if isinstance(messages, str) else messages
    texts = [block.text for block in BLOCKS if block.heading == heading]
    for expected, actual in zip(texts, messages, strict=True):
        agrees = doctest.OutputChecker().check_output(
            expected, actual.rstrip() + "\n", doctest.ELLIPSIS
        )
        assert agrees, f"the page shows\n{expected}\nand the message is\n{actual}"


def parts_of_source(path, *parts):
    """Returns the parts of a message that needs a GPU; checks that each is in the source."""
    text = re.sub(r'"\s*\n?\s*"', "", (ROOT / path).read_text())
    for part in parts:
        assert part in text
    return parts


# Tools.


@shown_under("No C++ compiler")
def _(fault):
    fault.monkeypatch.setenv("PATH", str(fault.folder))
    return fault.message_of_load()


@shown_under("A compiler that is too old")
def _(fault):
    fault.monkeypatch.setenv("CXX", fault.program("g++", "g++ (GCC) 9.4.0"))
    return "  ".join(doctor.row(doctor.cxx_check()))


@shown_under("No ninja")
def _(fault):
    fault.monkeypatch.setattr("_jit_loader.build.checks.ninja_path", lambda: None)
    return fault.message_of_load()


@shown_under("No Python.h")
def _(fault):
    fault.monkeypatch.setattr(sysconfig, "get_path", lambda *_, **__: str(fault.folder))
    return fault.message_of_load(
        str(fault.tiny.write("bindings/add2.cpp", "\n#include <Python.h>\n"))
    )


@shown_under("A system other than Linux")
def _(fault):
    fault.monkeypatch.setattr(sys, "platform", "darwin")
    return fault.message_of(lambda: jit_loader.load_op("add2", project=str(ROOT)))


# CUDA.


def with_cuda_source(fault):
    return fault.message_of_load(str(fault.tiny.write("kernels/add2.cu", "")))


def with_nvcc(fault, flag):
    if toolchain.nvcc_path() is None or torch.version.cuda is None:
        pytest.skip("needs nvcc, and a PyTorch with CUDA")
    source = str(fault.tiny.write("kernels/add2.cu", ""))
    return fault.message_of_load(source, extra_cuda_cflags=[flag])


@shown_under("No nvcc")
def _(fault):
    fault.monkeypatch.setattr(torch.version, "cuda", "13.0")
    fault.monkeypatch.setattr(toolchain, "nvcc_path", lambda: None)
    yield with_cuda_source(fault)
    _, middle, end = parts_of_source(
        "bindings/shared/op.h",
        "(): argument '",
        " was built without CUDA code; ",
        "run `python -m jit_loader doctor` to see what is missing, then restart Python",
    )
    yield f"add2(): argument 'a' is on cuda:0, but add2{middle}{end}"


@shown_under("PyTorch without CUDA")
def _(fault):
    fault.monkeypatch.setattr(torch.version, "cuda", None)
    fault.monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    return with_cuda_source(fault)


@shown_under("nvcc of another CUDA version")
def _(fault):
    nvcc = fault.program("nvcc", "Cuda compilation tools, release 12.4, V12.4.131")
    check = doctor.nvcc_check(nvcc, torch_cuda="13.0")
    return "  ".join(doctor.row(check)).replace(nvcc, "/usr/local/cuda/bin/nvcc")


@shown_under("nvcc refuses the compiler")
def _(fault):
    # Simulates a future g++.
    message = with_nvcc(fault, "-D__GNUC__=99")
    return re.sub(
        r"host_config\.h:\d+", "host_config.h:143", re.sub(r"than \d+", "than 15", message)
    )


@shown_under("nvcc does not know the GPU")
def _(fault):
    return with_nvcc(fault, "-gencode=arch=compute_999,code=sm_999").replace("999", "120")


@shown_under("Code for another GPU")
def _(fault):
    source = fault.tiny.write("message.cpp", LAUNCH_ERROR)
    program = fault.folder / "message"
    subprocess.run([CXX, "-std=c++17", f"-I{ROOT}", source, "-o", program], check=True)
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def no_device():
    raise RuntimeError("Found no NVIDIA driver on your system")


@shown_under("A kernel of cuda_kernel")
def _(fault):
    fault.monkeypatch.setattr(torch.version, "cuda", None)
    yield fault.message_of(nvrtc.load_library.__wrapped__)
    fault.monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    fault.monkeypatch.setattr(torch.cuda, "current_device", no_device)
    scale = jit_loader.cuda_kernel("__global__ void scale() {}", "scale")
    yield fault.message_of(lambda: scale[1, 1]())


@shown_under("Killed while compiling")
def _(fault):
    compiler = fault.folder / "cc1plus"
    compiler.write_text("#!/bin/sh\nkill -9 $$\n")
    compiler.chmod(0o755)
    return fault.message_of_load(extra_cflags=[f"-B{fault.folder}"])


# Compile, link, load.


@shown_under("The code does not compile")
def _(fault):
    fault.monkeypatch.setenv("LC_ALL", "C.UTF-8")  # g++'s quotation marks
    text = "int add(int a, int b) {\n    return a + b + ;\n}\nint x = y;\n"
    fault.tiny.write("kernels/add2_math.h", "\n" * 6 + text)
    fault.tiny.write("kernels/add2_cpu.cpp", '#include "add2_math.h"\n')
    return fault.message_of_load()


@shown_under("functions= of load_inline")
def _(fault):
    fault.monkeypatch.setenv("LC_ALL", "C.UTF-8")  # g++'s quotation marks
    text = """
#define PYBIND11_MODULE(name, m) void bind(Module m)
struct Module { template <class F> void def(const char*, F, const char*); };
namespace torch { template <class F> F wrap_pybind_function(F f) { return f; } }
"""
    load = jit_loader.load_inline
    options = {"functions": ["add2"], "no_implicit_headers": True}
    return fault.message_of(lambda: load("add2", text, **options))


@shown_under("C++ that is too old for PyTorch")
def _(fault):
    header = fault.tiny.write(
        "ATen.h",
        """


#if __cplusplus < 202002L
#error C++20 or later compatible compiler is required to use ATen.
#endif
""",
    )
    fault.tiny.write("kernels/add2_cpu.cpp", f'#include "{header}"\n')
    return fault.message_of_load(extra_cflags=["-std=c++17"])


@shown_under("undefined symbol")
def _(fault):
    text = "template <class T> void add2(T* c, const T* a, const T* b, long n);\n"
    fault.tiny.write("kernels/add2.h", text)
    return fault.message_of_call('#include "../kernels/add2.h"', "float c; add2(&c, &c, &c, 1)")


@shown_under("cannot find -l")
def _(fault):
    message = fault.message_of_call("", "", extra_ldflags=["-lmore"])
    return re.sub(r"^add2: \S*ld\S*:", "add2: /usr/bin/ld:", message)


@shown_under("A library is not found when the op is loaded")
def _(fault):
    source = fault.tiny.write("model.cpp", 'extern "C" void more() {}\n')
    # No other test may use this name: the dynamic linker would reuse the loaded library.
    library = fault.folder / "libmodel.so"
    subprocess.run([CXX, "-shared", "-fPIC", source, "-o", library], check=True)
    flags = [f"-L{fault.folder}", "-lmodel"]
    return fault.message_of_call('extern "C" void more();', "more()", extra_ldflags=flags)


@shown_under("The module has another name")
def _(fault):
    fault.tiny.write("kernels/add2_cpu.cpp", binding("another"))
    return fault.message_of_load()


@shown_under("A class or an operator is registered twice")
def _(fault):
    error = ImportError('generic_type: type "Held" is already registered!')
    yield fault.message_of(lambda: registrations.explain_second_class("add2", error))
    folder = fault.folder / "build"
    folder.mkdir()
    (folder / registrations.FILE).write_text('{"namespaces": ["aten"]}')
    refuse = registrations.refuse_second_registration
    yield fault.message_of(lambda: refuse("add2", folder, True))
    yield fault.message_of(lambda: refuse("add2", folder, False)).replace("aten", "my_ops")


@shown_under("An extension of load_many has no module")
def _(fault):
    text = '#include <cstdlib>\nextern "C" void* PyInit_add2() { std::abort(); }\n'
    call = {"name": "add2", "sources": [str(fault.tiny.write("bindings/add2.cpp", text))]}
    (crash,), (late,) = (jit_loader.load_many([call], timeout=t) for t in (None, 0.01))
    return f"{crash.error}\n{late.error}"


@shown_under("There is no such op")
def _(fault):
    return fault.message_of(lambda: jit_loader.load_op("add2", project="/home/me"))


@shown_under("The current folder is gone")
def _(fault):
    gone = fault.folder / "gone"
    gone.mkdir()
    fault.monkeypatch.chdir(gone)
    gone.rmdir()
    # Like a line typed in a shell or a notebook, which is in no file of a project.
    return fault.message_of(lambda: exec("load_op('add2')", {"load_op": jit_loader.load_op}))


@shown_under("A file kept changing")
def _(fault):
    header = fault.tiny.write("kernels/add2_math.h", "")
    fault.tiny.write("kernels/add2_cpu.cpp", '#include "add2_math.h"\n')
    fault.tiny.after_compilation(f"echo // >> {header}")
    return fault.message_of_load()


# The cache.


def in_home(text):
    return text.replace(os.environ["JIT_LOADER_CACHE"], "/home/me/.cache/jit_loader")


@shown_under("It cannot be written to")
def _(fault):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    fault.monkeypatch.setattr(build, "build_lock", refuse)
    return in_home(fault.message_of_load())


@shown_under("The disk is full")
def _(fault):
    folder = fault.folder / "temporary"
    folder.mkdir()
    fault.monkeypatch.setenv("TMPDIR", str(folder))
    # More data than the compiler buffers before it writes.
    text = "#define FOUR(x) x, x, x, x\n#define MANY(x) FOUR(FOUR(FOUR(FOUR(FOUR(x)))))\n"
    fault.tiny.write("kernels/add2_cpu.cpp", text + "int values[] = {MANY(1)};\n")

    def fill():
        mount("none", folder, "tmpfs", 0, "size=4k")
        (folder / "filler").write_bytes(bytes(4096))
        return fault.message_of_load()

    message = fault.request.getfixturevalue("with_mounts")(fill)
    return message.replace(str(folder), "/tmp")


@shown_under("Others can write to it")
def _(fault):
    os.chmod(cache_folder(), 0o777)
    return in_home(fault.message_of_load())


@shown_under("Waiting for another process")
def _(fault):
    fault.monkeypatch.setattr(lock, "SILENT_SECONDS", 0)
    folder = str(fault.folder / "add2" / "key")
    with lock.build_lock(folder, "add2"), lock.build_lock(folder, "add2", until=lambda: True):
        pass
    message = fault.printed().replace(f"process {os.getpid()} on {os.uname().nodename}", "{}")
    return re.sub(r"\{\} \(since [\d:]+\)", "process 4711 on gpu-node-3 (since 14:02:11)", message)


@shown_under("Old builds are removed")
def _(fault):
    removed = pruning.Removed()
    removed.builds, removed.size = 3, 2_100_000_000
    fault.monkeypatch.setattr(pruning, "prune", lambda **_: removed)
    fault.monkeypatch.setattr(pruning, "size_of", lambda _: 6e9)
    pruning.keep_under_limit(pruning.cache_limit(), "the new one")
    return fault.printed()


@shown_under("The limit is not a size")
def _(fault):
    fault.monkeypatch.setenv("JIT_LOADER_CACHE_LIMIT", "many")
    return fault.message_of_load()


@shown_under("Compiling is forbidden")
def _(fault):
    fault.tiny.write("kernels/add2_cpu.cpp", binding("add2"))
    fault.tiny.write("bindings/add2.cpp", "")
    sources = [str(fault.tiny.folder / "bindings/add2.cpp")]
    jit_loader.load("add2", [*sources, fault.source])
    fault.tiny.write("kernels/add2_cpu.cpp", binding("add2") + "\n")
    fault.monkeypatch.setenv("JIT_LOADER_NO_COMPILE", "1")
    return fault.message_of_load(*sources)


@shown_under("A compiler takes too long")
def _(fault):
    fault.monkeypatch.setenv("JIT_LOADER_COMPILE_TIMEOUT", "0.2")
    fault.tiny.slow_down(60)
    yield fault.message_of_load()
    fault.monkeypatch.setenv("JIT_LOADER_COMPILE_TIMEOUT", "soon")
    yield fault.message_of_load()


# Kernels.


@shown_under("A kernel has failed")
def _(fault):
    log = ROOT / "tests" / "commands" / "compute_sanitizer" / "write_past_the_end.log"
    yield "\n".join(check.shown(log.read_text())[1:9])


@shown_under("Spilled registers")
def _(fault):
    kernel = {"kernel": "add2_kernel(float*)", "architecture": "sm_90"}
    kernel.update({"spill stores": 96, "spill loads": 64})
    return ptxas.spill_warning("add2", {"<project>/kernels/add2.cu": [kernel]})


# Notebooks.


@shown_under("A cell is not run")
def _(fault):
    pytest.importorskip("IPython")
    from _jit_loader.notebook.extension import CellNotRun

    message = SHOWN["The code does not compile"](fault)
    return "\n".join(CellNotRun(jit_loader.CompileError(message))._render_traceback_())


@shown_under("A notebook outside of the project")
def _(fault):
    pytest.importorskip("IPython")
    from IPython.core.error import UsageError

    from _jit_loader.notebook.extension import _kernel_path

    fault.monkeypatch.chdir(fault.folder)
    with pytest.raises(UsageError) as error:
        _kernel_path("add2.cu")
    return str(error.value).replace(str(fault.folder), "/home/me")
