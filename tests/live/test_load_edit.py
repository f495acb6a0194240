"""load_op after an edit of a kernel: new device code now, the complete build behind."""

import shutil
import signal

import pytest
import torch

import jit_loader
from _jit_loader import loaded
from _jit_loader.cuda import nvrtc
from _jit_loader.ops import background
from tests.support.extension import PYTHON

pytestmark = [
    pytest.mark.skipif(jit_loader.why_no_cuda() is not None, reason="needs nvcc"),
    pytest.mark.skipif(nvrtc.library_path() is None, reason="PyTorch's wheel has no NVRTC"),
]

BINDING = (
    PYTHON
    + """\
#include "kernels/answer.h"
static PyObject* cpu(PyObject*, PyObject*) { return PyLong_FromLong(answer()); }
static PyObject* gpu(PyObject*, PyObject*) { return PyLong_FromLong(answer_of_gpu()); }
static PyMethodDef methods[] = {{"cpu", cpu, METH_NOARGS, ""}, {"gpu", gpu, METH_NOARGS, ""},
                                {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "answer", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_answer(void) { return PyModule_Create(&definition); }
"""
)
KERNEL = """\
#include "kernels/answer.h"
#define EXPORT
EXPORT long of_host(long x) { return x; }
__global__ void write_answer(long* to) { *to = 42; }
long answer_of_gpu() {
  long *on_gpu = nullptr, result = -1;
  cudaMalloc(&on_gpu, sizeof(long));
  write_answer<<<1, 1>>>(on_gpu);
  cudaMemcpy(&result, on_gpu, sizeof(long), cudaMemcpyDefault);
  cudaFree(on_gpu);
  return result;
}
"""
FILES = {
    "kernels/answer.h": "long answer();\nlong answer_of_gpu();\n",
    "kernels/answer_cpu.cpp": '#include "kernels/answer.h"\nlong answer() { return 42; }\n',
    "kernels/answer.cu": KERNEL,
    "bindings/answer.cpp": BINDING,
    "bindings/__init__.py": "",
    "bindings/answer.py": "from jit_loader import load_op\n\nmodule = load_op('answer')\n",
}


class Project:
    """An op whose kernel writes a number, and whose function for the CPU returns one."""

    def __init__(self, folder):
        self.folder = folder
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def edit(self, name, old, new):
        text = (self.folder / name).read_text()
        assert old in text
        (self.folder / name).write_text(text.replace(old, new))

    def load(self):
        return jit_loader.load_op("answer", project=str(self.folder))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Returns a cache with the first build of the op, for which nvcc takes 2 s."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JIT_LOADER_CACHE", str(folder / "cache"))
        Project(folder / "project").load()
    return folder / "cache"


@pytest.fixture
def project(built, tmp_path, monkeypatch):
    """Returns the project, with a private copy of the cache."""
    shutil.copytree(built, tmp_path / "cache", symlinks=True)
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "cache"))
    loaded.live.clear()
    yield Project(tmp_path / "project")
    for op in loaded.live.values():
        op.process.wait()


def build_behind():
    """Waits for the process that makes the complete build; returns its exit code."""
    (op,) = loaded.live.values()
    return op.process.wait()


def results(module):
    """Returns the CPU's result, and the GPU's if there is one."""
    return [module.cpu(), *([module.gpu()] if torch.cuda.is_available() else [])]


def test_new_device_code_replaces_that_of_the_last_build(project, monkeypatch, capfd, tmp_path):
    monkeypatch.delenv("JIT_LOADER_QUIET")
    # The process that makes the complete build has another current folder.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JIT_LOADER_CACHE", "cache")
    before = project.load()
    capfd.readouterr()
    project.edit("kernels/answer.cu", "*to = 42;", "*to = 43;")
    after = project.load()
    assert capfd.readouterr().err == (
        "answer: kernels/answer.cu changed: new device code; the complete build follows\n"
    )
    assert after is not before
    assert results(after) == [42, 43][: len(results(after))]
    assert set(results(before)) == {42}, "a module that was returned keeps its kernels"
    assert project.load() is after
    project.edit("kernels/answer.cu", "*to = 43;", "*to = 44; // longer\n")
    third = project.load()
    assert [results(m)[-1] for m in (before, after, third)] in ([42, 43, 44], [42, 42, 42])
    assert build_behind() == 0
    built = project.load()
    assert built is not third
    assert results(built) == results(third)
    assert not jit_loader.loaded("answer").compiled, "another process has built and published it"


def test_what_only_nvcc_refuses_is_an_error_of_the_next_load(project):
    before = project.load()
    project.edit("kernels/answer.cu", "*to = 42;", "*to = of_host(43);")
    assert project.load() is not before
    assert build_behind() != 0
    with pytest.raises(jit_loader.CompileError, match=r"answer\.cu:4: error: calling a __host__"):
        project.load()
    project.edit("kernels/answer.cu", "*to = of_host(43);", "*to = 42;")
    assert project.load() is before


def test_a_process_that_cannot_start_means_a_complete_build(project, monkeypatch):
    project.load()
    project.edit("kernels/answer.cu", "*to = 42;", "*to = 43;")

    def no_process(*arguments, **options):
        raise BlockingIOError("no process is to be had")

    monkeypatch.setattr(background, "start", no_process)
    assert results(project.load())[-1] in (42, 43)
    assert not loaded.live


def test_a_later_edit_of_host_code_ends_the_build_behind(project, monkeypatch):
    monkeypatch.setattr(background, "build_command", lambda name: ["sleep", "60"])
    project.load()
    project.edit("kernels/answer.cu", "*to = 42;", "*to = 43;")
    project.load()
    (op,) = loaded.live.values()
    project.edit("kernels/answer.cu", "result = -1", "result = -2")
    project.load()
    assert op.process.wait(10) == -signal.SIGTERM


@pytest.mark.slow
def test_other_edits_take_the_complete_build(project):
    before = project.load()
    for old, new in [
        ("result = -1", "result = -2"),
        ("#define EXPORT", "#define EXPORT inline"),
        ('#include "kernels/answer.h"', '#include <vector>\n#include "kernels/answer.h"'),
        ("*to = 42;", "static long x = 42; *to = x;"),
        ("__global__ void", "__global__ void __launch_bounds__(32)"),
    ]:
        project.edit("kernels/answer.cu", old, new)
        module = project.load()
        assert loaded.libraries[module.__file__] is module
        assert not loaded.live, (old, new)
        project.edit("kernels/answer.cu", new, old)
        assert project.load() is before


@pytest.mark.slow
def test_code_with_variables_takes_the_complete_build(project):
    project.edit("kernels/answer.cu", "#define EXPORT", "#define EXPORT\n__constant__ long x = 42;")
    project.edit("kernels/answer.cu", "*to = 42;", "*to = x;")
    project.load()
    project.edit("kernels/answer.cu", "*to = x;", "*to = x + 1;")
    assert results(project.load())[-1] in (42, 43)
    assert not loaded.live


@pytest.mark.slow
def test_an_edit_of_the_cpu_function_too_is_complete(project):
    project.load()
    project.edit("kernels/answer.cu", "*to = 42;", "*to = 43;")
    project.edit("kernels/answer_cpu.cpp", "return 42", "return 43")
    assert set(results(project.load())) == {43}
    assert not loaded.live


@pytest.mark.slow
def test_flags_take_the_complete_build(project):
    def load(**options):
        return jit_loader.load_op("answer", project=str(project.folder), **options)

    project.edit("kernels/answer.cu", "#define EXPORT", "#ifndef EXPORT\n#define EXPORT\n#endif")
    load(extra_cuda_cflags=["-DEXPORT=inline"])
    project.edit("kernels/answer.cu", "*to = 42;", "*to = 43;")
    load(extra_cuda_cflags=["-DEXPORT=inline"])
    assert not loaded.live, "the process that builds behind does not know these flags"
