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
from _jit_loader import this_process
from _jit_loader.build import build
from _jit_loader.cache import REGISTRATIONS, cache_folder, lock, pruning, registrations
from _jit_loader.commands import check, doctor, main
from _jit_loader.cuda import nvrtc
from _jit_loader.key import toolchain
from _jit_loader.live.compare_cubins import version_of
from tests.docs.markdown import ROOT, Page
from tests.report.test_errors import PYBIND
from tests.support.extension import binding, program
from tests.support.mounts import mount

BLOCKS = [block for block in Page("docs/troubleshooting.md").blocks if block.language == "text"]
CXX = os.environ.get("CXX", "c++")

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


class Messages:
    """Causes failures, usually of a load of the op add2.

    Each heading of the page has a method of its name, which returns or yields the messages.
    """

    def __init__(self, tiny, monkeypatch, folder, capsys, request):
        self.tiny, self.monkeypatch, self.folder = tiny, monkeypatch, folder
        self.capsys, self.request = capsys, request
        self.source = str(tiny.write("kernels/add2_cpu.cpp", ""))
        tiny.write("pyproject.toml", "")  # marks the folder as a project

    def of_load(self, *sources, **options):
        return self.of(lambda: jit_loader.load("add2", [*sources, self.source], **options))

    def of(self, function, errors=(RuntimeError, OSError, ValueError)):
        with pytest.raises(errors) as error:
            function()
        return str(error.value).replace(str(self.tiny.folder), "/home/me/project")

    def of_call(self, declaration, call, **options):
        text = binding("add2", f"{declaration}\n", f"{call};")
        return self.of_load(str(self.tiny.write("bindings/add2.cpp", text)), **options)

    def of_cuda_source(self, **options):
        return self.of_load(str(self.tiny.write("kernels/add2.cu", "")), **options)

    def of_nvcc(self, flag):
        if toolchain.nvcc_path() is None or torch.version.cuda is None:
            pytest.skip("needs nvcc, and a PyTorch with CUDA")
        return self.of_cuda_source(extra_cuda_cflags=[flag])

    def program(self, name, commands):
        """Writes a shell script; returns its path."""
        return str(program(self.folder / name, f"#!/bin/sh\n{commands}\n"))

    def in_home(self, text):
        return text.replace(os.environ["JIT_LOADER_CACHE"], "/home/me/.cache/jit_loader")

    # Tools.

    def no_cpp_compiler(self):
        self.monkeypatch.setenv("PATH", str(self.folder))
        return self.of_load()

    def a_compiler_that_is_too_old(self):
        self.monkeypatch.setenv("CXX", self.program("g++", "echo 'g++ (GCC) 9.4.0'"))
        return "  ".join(doctor.row(doctor.cxx_check()))

    def no_ninja(self):
        self.monkeypatch.setattr("_jit_loader.build.checks.ninja_path", lambda: None)
        return self.of_load()

    def no_python_h(self):
        self.monkeypatch.setattr(sysconfig, "get_path", lambda *_, **__: str(self.folder))
        return self.of_load(str(self.tiny.write("bindings/add2.cpp", "\n#include <Python.h>\n")))

    def a_system_other_than_linux(self):
        self.monkeypatch.setattr(sys, "platform", "darwin")
        return self.of(lambda: jit_loader.load_op("add2", project=str(ROOT)))

    # CUDA.

    def no_nvcc(self):
        self.monkeypatch.setattr(torch.version, "cuda", "13.0")
        self.monkeypatch.setattr(toolchain, "nvcc_path", lambda: None)
        yield self.of_cuda_source()
        # The second message needs a GPU.
        source = re.sub(r'"\s*\n?\s*"', "", (ROOT / "bindings/shared/op.h").read_text())
        middle = " was built without CUDA code; "
        end = "run `python -m jit_loader doctor` to see what is missing, then restart Python"
        assert all(part in source for part in ("(): argument '", middle, end))
        yield f"add2(): argument 'a' is on cuda:0, but add2{middle}{end}"

    def pytorch_without_cuda(self):
        self.monkeypatch.setattr(torch.version, "cuda", None)
        self.monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
        return self.of_cuda_source()

    def nvcc_of_another_cuda_version(self):
        version = version_of(b"Cuda compilation tools, release 12.4, V12.4.131")
        check = doctor.nvcc_check("/usr/local/cuda/bin/nvcc", version, torch_cuda="13.0")
        return "  ".join(doctor.row(check))

    def nvcc_refuses_the_compiler(self):
        message = self.of_nvcc("-D__GNUC__=99")  # a future g++
        message = re.sub(r"than \d+", "than 15", message)
        return re.sub(r"host_config\.h:\d+", "host_config.h:143", message)

    def nvcc_does_not_know_the_gpu(self):
        return self.of_nvcc("-gencode=arch=compute_999,code=sm_999").replace("999", "120")

    def code_for_another_gpu(self):
        source = self.tiny.write("message.cpp", LAUNCH_ERROR)
        program = self.folder / "message"
        subprocess.run([CXX, "-std=c++17", f"-I{ROOT}", source, "-o", program], check=True)
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout

    def a_kernel_of_cuda_kernel(self):
        self.monkeypatch.setattr(torch.version, "cuda", None)
        yield self.of(nvrtc.load_library.__wrapped__)

        def no_device():
            raise RuntimeError("Found no NVIDIA driver on your system")

        self.monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        self.monkeypatch.setattr(torch.cuda, "current_device", no_device)
        scale = jit_loader.cuda_kernel("__global__ void scale() {}", "scale")
        yield self.of(lambda: scale[1, 1]())

    def killed_while_compiling(self):
        self.program("cc1plus", "kill -9 $$")
        return self.of_load(extra_cflags=[f"-B{self.folder}"])

    # Compile, link, load.

    def the_code_does_not_compile(self):
        self.monkeypatch.setenv("LC_ALL", "C.UTF-8")  # g++'s quotation marks
        text = "int add(int a, int b) {\n    return a + b + ;\n}\nint x = y;\n"
        self.tiny.write("kernels/add2_math.h", "\n" * 6 + text)
        self.tiny.write("kernels/add2_cpu.cpp", '#include "add2_math.h"\n')
        return self.of_load()

    def functions_of_load_inline(self):
        self.monkeypatch.setenv("LC_ALL", "C.UTF-8")
        options = {"functions": ["add2"], "no_implicit_headers": True}
        return self.of(lambda: jit_loader.load_inline("add2", "\n" + PYBIND, **options))

    def cpp_that_is_too_old_for_pytorch(self):
        error = "#error C++20 or later compatible compiler is required to use ATen."
        header = self.tiny.write("ATen.h", f"\n\n\n#if __cplusplus < 202002L\n{error}\n#endif\n")
        self.tiny.write("kernels/add2_cpu.cpp", f'#include "{header}"\n')
        return self.of_load(extra_cflags=["-std=c++17"])

    def undefined_symbol(self):
        text = "template <class T> void add2(T* c, const T* a, const T* b, long n);\n"
        self.tiny.write("kernels/add2.h", text)
        return self.of_call('#include "../kernels/add2.h"', "float c; add2(&c, &c, &c, 1)")

    def cannot_find_l(self):
        message = self.of_call("", "", extra_ldflags=["-lmore"])
        return re.sub(r"^add2: \S*ld\S*:", "add2: /usr/bin/ld:", message)

    def a_library_is_not_found_when_the_op_is_loaded(self):
        source = self.tiny.write("model.cpp", 'extern "C" void more() {}\n')
        # No other test may use this name: the dynamic linker would reuse the loaded library.
        library = self.folder / "libmodel.so"
        subprocess.run([CXX, "-shared", "-fPIC", source, "-o", library], check=True)
        flags = [f"-L{self.folder}", "-lmodel"]
        return self.of_call('extern "C" void more();', "more()", extra_ldflags=flags)

    def the_module_has_another_name(self):
        self.tiny.write("kernels/add2_cpu.cpp", binding("another"))
        return self.of_load()

    def a_class_or_an_operator_is_registered_twice(self):
        error = ImportError('generic_type: type "Held" is already registered!')
        yield self.of(lambda: registrations.explain_second_class("add2", error))
        (self.folder / REGISTRATIONS).write_text('{"namespaces": ["aten"]}')
        refuse = registrations.refuse_second_registration
        yield self.of(lambda: refuse("add2", self.folder, True))
        yield self.of(lambda: refuse("add2", self.folder, False)).replace("aten", "my_ops")

    def an_extension_of_load_many_has_no_module(self):
        text = '#include <cstdlib>\nextern "C" void* PyInit_add2() { std::abort(); }\n'
        call = {"name": "add2", "sources": [str(self.tiny.write("bindings/add2.cpp", text))]}
        (crash,), (late,) = (jit_loader.load_many([call], timeout=t) for t in (None, 0.01))
        return f"{crash.error}\n{late.error}"

    def there_is_no_such_op(self):
        return self.of(lambda: jit_loader.load_op("add2", project="/home/me"))

    def the_current_folder_is_gone(self):
        gone = self.folder / "gone"
        gone.mkdir()
        self.monkeypatch.chdir(gone)
        gone.rmdir()
        # Like a line typed in a shell or a notebook, which is in no file of a project.
        return self.of(lambda: exec("load_op('add2')", {"load_op": jit_loader.load_op}))

    def a_file_kept_changing(self):
        header = self.tiny.write("kernels/add2_math.h", "")
        self.tiny.write("kernels/add2_cpu.cpp", '#include "add2_math.h"\n')
        self.tiny.after_compilation(f"echo // >> {header}")
        return self.of_load()

    # The cache.

    def it_cannot_be_written_to(self):
        def refuse(folder, *_, **__):
            raise PermissionError(13, "Permission denied", folder)

        self.monkeypatch.setattr(build, "build_lock", refuse)
        return self.in_home(self.of_load())

    def the_disk_is_full(self):
        folder = self.folder / "temporary"
        folder.mkdir()
        self.monkeypatch.setenv("TMPDIR", str(folder))
        # More data than the compiler buffers before it writes.
        text = "#define FOUR(x) x, x, x, x\n#define MANY(x) FOUR(FOUR(FOUR(FOUR(FOUR(x)))))\n"
        self.tiny.write("kernels/add2_cpu.cpp", text + "int values[] = {MANY(1)};\n")

        def fill():
            mount("none", folder, "tmpfs", 0, "size=4k")
            (folder / "filler").write_bytes(bytes(4096))
            return self.of_load()

        message = self.request.getfixturevalue("with_mounts")(fill)
        return message.replace(str(folder), "/tmp")

    def others_can_write_to_it(self):
        os.chmod(cache_folder(), 0o777)
        return self.in_home(self.of_load())

    def waiting_for_another_process(self):
        self.monkeypatch.setattr(lock, "SILENT_SECONDS", 0)
        folder = str(self.folder / "add2" / "key")
        with lock.build_lock(folder, "add2"), lock.build_lock(folder, "add2", until=lambda: True):
            printed = self.capsys.readouterr().err
        printed = printed.replace(f"process {os.getpid()} on {os.uname().nodename}", "{}")
        shown = "process 4711 on gpu-node-3 (since 14:02:11)"
        return re.sub(r"\{\} \(since [\d:]+\)", shown, printed)

    def old_builds_are_removed(self):
        removed = pruning.Removed()
        removed.builds, removed.size = 3, 2_100_000_000
        self.monkeypatch.setattr(pruning, "prune", lambda **_: removed)
        self.monkeypatch.setattr(pruning, "size_of", lambda _: 6e9)
        pruning.keep_under_limit(pruning.cache_limit(), "the new one")
        return self.capsys.readouterr().err

    def the_limit_is_not_a_size(self):
        self.monkeypatch.setenv("JIT_LOADER_CACHE_LIMIT", "many")
        return self.of_load()

    def compiling_is_forbidden(self):
        self.tiny.write("kernels/add2_cpu.cpp", binding("add2"))
        source = str(self.tiny.write("bindings/add2.cpp", ""))
        jit_loader.load("add2", [source, self.source])
        self.tiny.write("kernels/add2_cpu.cpp", binding("add2") + "\n")
        self.monkeypatch.setenv("JIT_LOADER_NO_COMPILE", "1")
        return self.of_load(source)

    def a_compiler_takes_too_long(self):
        self.tiny.slow_down(60)
        for seconds in ("0.2", "soon"):
            self.monkeypatch.setenv("JIT_LOADER_COMPILE_TIMEOUT", seconds)
            yield self.of_load()

    # Kernels.

    def an_edit_of_a_kernel_waits_for_nvcc(self):
        assert "they need CUDA 13" in doctor.live_check("12.8.93", torch_cuda="12.8").text
        said = "  ".join(doctor.row(doctor.live_check("13.2.51", torch_cuda="13.0")))
        return re.sub(r"NVRTC \([\w.]+\)", "NVRTC (13.0.88)", said)

    def a_kernel_has_failed(self):
        log = ROOT / "tests" / "commands" / "compute_sanitizer" / "write_past_the_end.log"
        return "\n".join(check.shown(log.read_text())[1:9])

    # Notebooks.

    def a_cell_is_not_run(self):
        pytest.importorskip("IPython")
        from _jit_loader.notebook.extension import CellNotRun

        error = jit_loader.CompileError(self.the_code_does_not_compile())
        return "\n".join(CellNotRun(error)._render_traceback_())

    def a_notebook_outside_of_the_project(self):
        self.monkeypatch.chdir(self.folder)
        assert main(["build"]) == 1
        return self.capsys.readouterr().err.replace(str(self.folder), "/home/me")


HEADINGS = dict.fromkeys(block.heading for block in BLOCKS)
SLOW = "An extension of load_many has no module"  # tests/ops/test_load_many.py has its messages


@pytest.mark.parametrize(
    "heading", [pytest.param(h, marks=[pytest.mark.slow] * (h == SLOW)) for h in HEADINGS]
)
def test_message_on_the_page_is_the_printed_one(
    heading, tiny, monkeypatch, tmp_path, capsys, request
):
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    # Keeps the modules that are named add2 here out of the other tests in this process.
    monkeypatch.setattr(this_process, "last", dict(this_process.last))
    messages = Messages(tiny, monkeypatch, tmp_path, capsys, request)
    method = re.sub(r"\W+", "_", heading.replace("++", "pp")).strip("_").lower()
    actual = getattr(messages, method)()
    actual = [actual] if isinstance(actual, str) else actual
    expected = [block.text for block in BLOCKS if block.heading == heading]
    for shown, printed in zip(expected, actual, strict=True):
        printed = printed.rstrip() + "\n"
        agrees = doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS)
        assert agrees, f"the page shows\n{shown}\nand the message is\n{printed}"
