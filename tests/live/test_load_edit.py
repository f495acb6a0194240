"""After an edit of a kernel, load_op loads new device code; the complete build follows."""

import ctypes
import functools
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import jit_loader
from _jit_loader import loading, this_process
from _jit_loader.build import byproducts
from _jit_loader.cache import cache_folder
from _jit_loader.cache.files import read_checked, write_checked
from _jit_loader.cache.lock import build_lock
from _jit_loader.commands import main
from _jit_loader.key.machine import Machine
from _jit_loader.live import load as live
from _jit_loader.live import program
from _jit_loader.live.edit import LIVE
from _jit_loader.system.pool import call_in_background
from tests.support.answer import FILES, KERNEL
from tests.support.extension import edit, fork, write_files
from tests.support.nvrtc import needs_nvccs_version

pytestmark = [pytest.mark.nvcc, needs_nvccs_version]

# The op of tests/support/answer.py with a second kernel. The environment variable SECOND launches
# it; CAPTURE captures a launch into a CUDA graph.
WITH_TWO_KERNELS = {
    **FILES,
    "kernels/answer.cu": KERNEL.replace(
        "__global__ void write_answer(long* to) { *to = 42; }",
        "__device__ long value() { return 42; }\n"
        "template <class T> __global__ void write_answer(T* to) { *to = value(); }\n"
        'extern "C" char* getenv(const char*);',
    ).replace(
        "  write_answer<<<1, 1>>>(on_gpu);\n",
        """\
  cudaStream_t stream = nullptr;
  if (getenv("CAPTURE")) {
    cudaStreamCreate(&stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  }
  if (getenv("SECOND")) write_answer<<<1, 1, 0, stream>>>((unsigned long*)on_gpu);
  else write_answer<<<1, 1, 0, stream>>>(on_gpu);
  if (stream) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphLaunch(executable, stream);
    cudaStreamSynchronize(stream);
  }
""",
    ),
}
PROJECTS = {"project": FILES, "with_two_kernels": WITH_TWO_KERNELS}
# Two kernels that NVRTC does not tell apart by "other<long>".
OVERLOADED = """\
template <class T> __global__ void other(T*) {}
template <class T> __global__ void other(T*, int) {}
template __global__ void other(long*);
template __global__ void other(long*, int);
"""
FIRST, SECOND = "_Z12write_answerIlEvPT_", "_Z12write_answerImEvPT_"


class Project:
    """An op whose kernel writes a number and whose function for the CPU returns a number."""

    def __init__(self, folder, name="project"):
        self.folder = folder
        write_files(folder, PROJECTS[name])

    def edit(self, name, old, new):
        edit(self.folder / name, old, new)

    def load(self, **options):
        return jit_loader.load_op("answer", project=str(self.folder), **options)

    def load_edited(self, old, new, name="kernels/answer.cu"):
        """Loads, edits a file, by default that of the kernel, and loads again."""
        self.load()
        self.edit(name, old, new)
        return self.load()


def first_builds(tmp_path_factory, load):
    """Returns a function that returns a cache with the first build; nvcc takes 2 s for it.

    load(folder, name): builds a project there.
    """

    @functools.cache
    def build(name):
        folder = tmp_path_factory.mktemp(name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JIT_LOADER_CACHE", str(folder / "cache"))
            # In another process, because this one could not load operators a second time.
            process = fork.Process(target=load, args=(folder / "project", name))
            process.start()
            process.join()
        assert process.exitcode == 0
        return folder / "cache"

    return build


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return first_builds(tmp_path_factory, lambda *project: Project(*project).load())


@pytest.fixture
def project(built, tmp_path, monkeypatch):
    yield from _project("project", built, tmp_path, monkeypatch)


@pytest.fixture
def with_two_kernels(built, tmp_path, monkeypatch):
    monkeypatch.setattr(program, "_FEW", 1)
    yield from _project("with_two_kernels", built, tmp_path, monkeypatch)


def _project(name, built, folder, monkeypatch):
    """Yields the project, with a private copy of the cache."""
    shutil.copytree(built(name), folder / "cache", symlinks=True)
    monkeypatch.setenv("JIT_LOADER_CACHE", str(folder / "cache"))
    monkeypatch.setattr(this_process, "ops", {})  # a later check before a cell would build them
    for module in [*_bindings()]:  # of this project, or of another test's
        monkeypatch.delitem(sys.modules, module)
    live.ops.clear()
    yield Project(folder / "project", name)
    for op in live.ops.values():
        if op.process is not None:
            op.process.terminate()
            op.process.wait()
    for name in [*_bindings()]:
        del sys.modules[name]


def _bindings():
    return (name for name in sys.modules if name.partition(".")[0] == "bindings")


@pytest.fixture
def no_builds(monkeypatch):
    """Makes complete builds of live edits never end."""
    started = []
    start = functools.partial(subprocess.Popen, ["sleep", "600"])
    monkeypatch.setattr(loading, "start_build", lambda *_: started.append(start()) or started[-1])
    yield
    for process in started:
        process.kill()


def background_build():
    """Waits for the process that makes the complete build; returns its exit code."""
    (op,) = live.ops.values()
    return op.process.wait()


def said(capfd):
    """Returns what was printed; N stands for numbers of seconds."""
    return re.sub(r"[\d.]+ s\b", "N s", capfd.readouterr().err)


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
    assert set(results(before)) == {42}
    after = project.load_edited("*to = 42;", "*to = 43;")
    assert said(capfd) == (
        "answer: kernels/answer.cu changed: new device code in N s; the complete build follows\n"
    )
    assert after is before, "a module that was returned runs the new kernels"
    assert results(after) == [42, 43][: len(results(after))]
    assert project.load() is after
    third = project.load_edited("*to = 43;", "*to = 44; // longer\n")
    assert results(third) == [42, 44][: len(results(after))]
    assert background_build() == 0
    built = project.load()
    assert built is not third
    assert results(built) == results(third)
    assert not jit_loader.loaded("answer").compiled, "another process has built and published it"


@pytest.mark.usefixtures("no_builds")
def test_a_library_gets_its_own_kernels_back_with_its_files(project):
    before = project.load()
    text = (project.folder / "kernels/answer.cu").read_text()
    for launched_before in (True, False):
        if launched_before:
            results(before)
        assert results(project.load_edited("*to = 42;", "*to = 43;"))[1:] in ([43], [])
        (project.folder / "kernels/answer.cu").write_text(text)
        assert project.load() is before
        assert not live.ops
        assert set(results(before)) == {42}
    assert results(project.load_edited("*to = 42;", "*to = 43;"))[1:] in ([43], [])


def test_ctrl_c_in_an_edit_of_host_code_is_raised(project, monkeypatch):
    monkeypatch.setattr(program, "compile_program", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        project.load_edited("result = -1", "result = -2")


@pytest.mark.slow
def test_a_failed_complete_build_is_an_error_of_the_next_load(project, monkeypatch):
    before = project.load()
    project.edit("kernels/answer.cu", "*to = 42;", "*to = 43;")
    # A compiler that takes longer is killed.
    monkeypatch.setenv("JIT_LOADER_COMPILE_TIMEOUT", "0.1")
    project.load()
    assert background_build() != 0
    with pytest.raises(jit_loader.CompileError):
        project.load()
    project.edit("kernels/answer.cu", "*to = 43;", "*to = 42;")
    assert project.load() is before


@pytest.mark.slow
def test_a_process_that_cannot_start_means_a_complete_build(project, monkeypatch):
    before = project.load()

    def no_process(*arguments):
        raise BlockingIOError("no process can be started")

    monkeypatch.setattr(loading, "start_build", no_process)
    after = project.load_edited("*to = 42;", "*to = 43;")
    assert results(after) == [42, 43][: len(results(after))]
    assert set(results(before)) == {42}
    assert not live.ops
    assert not [path for path in this_process.patched if path.startswith(cache_folder())]


@pytest.mark.usefixtures("no_builds")
def test_a_later_edit_of_host_code_ends_the_background_build(project):
    project.load_edited("*to = 42;", "*to = 43;")
    (op,) = live.ops.values()
    with pytest.raises(jit_loader.CompileError):
        project.load_edited("result = -1", "result = nothing")
    assert op.process.wait(10) == -signal.SIGTERM


def why(project, monkeypatch, capfd):
    """Returns what why says that the next load does."""
    monkeypatch.chdir(project.folder)
    capfd.readouterr()
    assert main(["why", "--verbose", "answer"]) == 0
    (line,) = re.findall("answer: the next load (.*)", capfd.readouterr().out)
    return line


SOURCE = "kernels/answer.cu"
OUTSIDE = f"{SOURCE}: changed outside of device code"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("*to = 42;", "*to = 43;", None),
        ("result = -1", "result = -2", OUTSIDE),
        ("#define EXPORT", "#define EXPORT inline", OUTSIDE),
        ("#define EXPORT", "#include <vector>\n#define EXPORT", OUTSIDE),
        ("#define EXPORT", "#define EXPORT\n__constant__ long x = 1;", OUTSIDE),
        ("*to = 42;", "static long x = 42; *to = x;", OUTSIDE),
        ("__global__ void", "__global__ void __launch_bounds__(32)", OUTSIDE),
        ("*to = 42;", "*to = missing;", f'{SOURCE}(4): error: identifier "missing" is undefined'),
    ],
)
def test_why_says_what_the_next_load_does(project, monkeypatch, capfd, old, new, reason):
    project.edit(SOURCE, old, new)
    expected = "makes a live edit" if reason is None else f"waits for the complete build: {reason}"
    assert why(project, monkeypatch, capfd).replace(f"{project.folder}/", "") == expected


@pytest.mark.parametrize("name", ["kernels/answer.h", "kernels/answer_cpu.cpp"])
def test_code_that_the_cpu_runs_takes_the_complete_build(project, monkeypatch, capfd, name):
    project.edit(SOURCE, "*to = 42;", "*to = 43;")
    project.edit(name, "long", " long")
    reason = f"waits for the complete build: {name} is code for the CPU"
    assert why(project, monkeypatch, capfd) == reason


@pytest.mark.parametrize(("live_edits", "gpus"), [("0", ["9.0"]), ("", [])])
def test_a_setting_or_a_machine_without_a_gpu_takes_the_complete_build(
    project, monkeypatch, capfd, live_edits, gpus
):
    project.edit(SOURCE, "*to = 42;", "*to = 43;")
    monkeypatch.setattr(byproducts, "this_machine", lambda: Machine("", gpus))
    monkeypatch.setenv("JIT_LOADER_LIVE", live_edits)
    assert "JIT_LOADER_LIVE is 0, or this machine has no" in why(project, monkeypatch, capfd)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "reason"), [("device", "variables that host code may read"), ("constant", "live edit")]
)
def test_code_with_variables_takes_the_complete_build(project, monkeypatch, capfd, kind, reason):
    project.edit(SOURCE, "#define EXPORT", f"#define EXPORT\n__{kind}__ long number = 42;")
    project.load_edited("*to = 42;", "*to = number;")
    project.edit(SOURCE, "*to = number;", "*to = number + 1;")
    assert reason in why(project, monkeypatch, capfd)


@pytest.mark.slow
def test_new_device_code_and_the_complete_build_have_the_macros_and_flags_of_the_call(project):
    options = {"defines": {"VALUE": 7}, "extra_cuda_cflags": ["-DEXPORT=inline"]}
    project.edit("kernels/answer.cu", "#define EXPORT", "#ifndef EXPORT\n#define EXPORT\n#endif")
    before = project.load(**options)
    project.edit("kernels/answer.cu", "*to = 42;", "*to = VALUE;")
    after = project.load(**options)
    assert live.ops
    assert results(after) == [42, 7][: len(results(after))]
    assert background_build() == 0
    built = project.load(**options)
    assert built not in (before, after)
    assert results(built) == results(after)
    assert not jit_loader.loaded("answer[VALUE=7]").compiled, "another process has built it"


def test_threads_that_load_an_edit_get_one_module(project, monkeypatch):
    started, barrier = [], threading.Barrier(3)

    def start_build(call, *_):
        started.append(call.arguments[0])
        return subprocess.Popen(["sleep", "60"])

    def load(_):
        barrier.wait()
        return project.load()

    monkeypatch.setattr(loading, "start_build", start_build)
    project.load()
    project.edit("kernels/answer.cu", "*to = 42;", "*to = 43;")
    with ThreadPoolExecutor(3) as threads:
        modules = set(threads.map(load, range(3)))
    for op in live.ops.values():
        op.process.terminate()
    assert len(modules) == 1
    assert started == ["answer"]


@pytest.mark.slow
@pytest.mark.parametrize("differs", ["host code", "device code"])
def test_other_code_of_the_complete_build_is_reported_once(project, monkeypatch, capfd, differs):
    """Simulates a lexer that mistakes host code, or an NVRTC that compiles differently."""
    monkeypatch.delenv("JIT_LOADER_QUIET")
    project.load_edited("*to = 42;", "*to = 43;")
    (op,) = live.ops.values()
    if differs == "host code":
        assumed = os.path.join(op.edit.build.folder, "answer.cuda.o")
        os.unlink(assumed)
        os.link(os.path.join(op.edit.build.folder, "answer_cpu.o"), assumed)
        reason = "the host code has changed too"
    assert background_build() == 0
    if differs == "device code":
        builds = glob.glob(os.path.join(os.path.dirname(op.edit.build.folder), "*", LIVE))
        answer = {"kernels": {}, "reason": "other operations", "removed": [], "differs": True}
        (new,) = {*map(os.path.dirname, builds)} - {op.edit.build.folder}
        write_checked(os.path.join(new, LIVE), {"<project>/kernels/answer.cu": answer})
        reason = "other operations"
    capfd.readouterr()
    project.load()
    text = capfd.readouterr().err
    assert f"answer: warning: the live edit and the complete build differ: {reason}. " in text
    project.load_edited("*to = 43;", "*to = 44;")
    assert not live.ops
    assert "warning" not in capfd.readouterr().err


@pytest.mark.slow
def test_builds_that_nobody_waits_for_run_in_turn(project, monkeypatch):
    project.edit("kernels/answer.cu", "*to = 42;", "*to = 7;")
    monkeypatch.delenv("JIT_LOADER_QUIET")
    flags = {"extra_cflags": [], "extra_cuda_cflags": [], "extra_ldflags": []}
    arguments = ["load_op", ["answer", str(project.folder), flags], []]
    call = "_jit_loader.loading:build_in_turn", arguments
    with build_lock(os.path.join(cache_folder(), "background"), "a test"):
        process = call_in_background(*call, 10, stderr=subprocess.PIPE, text=True)
        assert f"answer: waiting for process {os.getpid()}" in process.stderr.readline()
    assert "built in" in process.communicate()[1]
    assert process.returncode == 0


def kernels_of_edit():
    """Returns the names of the kernels that the last edit compiled before their first launch."""
    (op,) = live.ops.values()
    return op.codes[0].kernels


@pytest.mark.gpu
def test_only_launched_kernels_are_compiled_first(with_two_kernels, monkeypatch):
    module = with_two_kernels.load()
    assert module.gpu() == 42
    with_two_kernels.load_edited("return 42", "return 43")
    assert kernels_of_edit() == {FIRST}
    assert module.gpu() == 43
    monkeypatch.setenv("SECOND", "1")
    assert module.gpu() == 43, "compiled at its first launch"
    with_two_kernels.load_edited("return 43", "return 44")
    assert kernels_of_edit() == {FIRST, SECOND}
    assert module.gpu() == 44


@pytest.mark.slow
def test_kernels_that_nvrtc_cannot_find_by_their_names_take_the_complete_build(
    with_two_kernels, monkeypatch, capfd
):
    with_two_kernels.load_edited("extern", OVERLOADED + "extern")
    with_two_kernels.edit(SOURCE, "return 42", "return 43")
    assert "waits for the complete build" in why(with_two_kernels, monkeypatch, capfd)


def test_a_kernel_that_the_record_lacks_takes_the_complete_build(
    with_two_kernels, monkeypatch, capfd, tmp_path
):
    """It would go on running its old code."""
    for path in tmp_path.glob("cache/*/answer/*/*/answer.cuda.o.json"):
        record = read_checked(path)
        write_checked(path, record | {"kernels": record["kernels"][1:]})
    with_two_kernels.edit(SOURCE, "return 42", "return 43")
    assert "a kernel that its record lacks" in why(with_two_kernels, monkeypatch, capfd)


def test_an_error_in_a_kernel_that_was_not_launched_is_one_of_the_load(
    with_two_kernels, monkeypatch, capfd
):
    with_two_kernels.edit(SOURCE, "*to = value();", "*to = T::value();")
    assert "answer.cu(5): error: name followed by" in why(with_two_kernels, monkeypatch, capfd)


@pytest.mark.slow
def test_a_kernel_that_does_not_compile_at_its_first_launch_is_an_error(with_two_kernels, capfd):
    """The assembler refuses an instruction only when the kernel is compiled."""
    with_two_kernels.load_edited("*to = value();", 'asm("nonsense;");')
    (op,) = live.ops.values()
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    # The library's pointer to __cudaGetKernel. Without a GPU nothing can be launched.
    pointer = op.launches.pointers["__cudaGetKernel"]
    get_kernel = function(ctypes.c_void_p.from_address(pointer).value)
    capfd.readouterr()
    assert get_kernel(op.launches.handles[FIRST], None) == 98, "cudaErrorInvalidDeviceFunction"
    assert "jit_loader: the kernel write_answer<long> does not compile:" in capfd.readouterr().err
    assert background_build() != 0
    with pytest.raises(jit_loader.CompileError, match="nonsense"):
        with_two_kernels.load()


@pytest.mark.usefixtures("no_builds")
def test_threads_launch_a_kernel_for_the_first_time_together(with_two_kernels):
    """They hold the GIL or wait for the lock of the launch's static variable."""
    after = with_two_kernels.load_edited("return 42", "return 43")
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: after.gpu(), range(4), timeout=60))
    assert found == [43 if torch.cuda.is_available() else found[0]] * 4
    (op,) = live.ops.values()
    assert program.compile_edit(op.edit.sources[0], set()).kernels == {FIRST}, "in a new process"


@pytest.mark.gpu
def test_a_first_launch_may_be_captured(with_two_kernels, monkeypatch):
    monkeypatch.setenv("CAPTURE", "1")
    after = with_two_kernels.load_edited("return 42", "return 43")
    assert kernels_of_edit() == set()
    assert after.gpu() == 43


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_all_devices_run_the_edited_kernel(with_two_kernels, monkeypatch):
    for device in range(2):
        torch.zeros(1, device=f"cuda:{device}")

    def results_of_devices(module):
        found = []
        for device in range(2):
            with torch.cuda.device(device):
                found.append(module.gpu())
        return found

    assert results_of_devices(with_two_kernels.load()) == [42, 42]
    after = with_two_kernels.load_edited("return 42", "return 43")
    assert kernels_of_edit() == {FIRST}
    assert results_of_devices(after) == [43, 43]
    monkeypatch.setenv("SECOND", "1")
    with torch.cuda.device(1):
        assert after.gpu() == 43, "compiled at its first launch, on the second device"
    assert results_of_devices(after) == [43, 43]
