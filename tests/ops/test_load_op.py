"""load_op finds an op by its name in the caller's project."""

import os
import shutil
import subprocess
import sys

import pytest
import torch

import jit_loader
from _jit_loader import this_process
from _jit_loader.commands.new import KINDS
from _jit_loader.key import machine, toolchain
from tests.support.extension import ROOT, binding, make_compiler_without_cpp_library, write_files

HEADER = """\
long answer();
int launch_answer();
#ifdef WITH_CUDA
#define LAUNCHED launch_answer()
#else
#define LAUNCHED -1
#endif
"""
BINDING = binding("answer", '#include "kernels/answer.h"\n', get="answer()", cuda="LAUNCHED")
KERNEL = """\
__global__ void write_answer(long* to) { *to = 42; }
int launch_answer() {
  write_answer<<<1, 1>>>(nullptr);
  return cudaPeekAtLastError();
}
"""


def write_project(folder, with_cuda=False):
    files = {
        "kernels/answer.h": HEADER,
        "kernels/answer_cpu.cpp": '#include "kernels/answer.h"\nlong answer() { return 42; }\n',
        "bindings/answer.cpp": BINDING,
        "bindings/__init__.py": "",
        "bindings/answer.py": "from jit_loader import load_op\n\nget = load_op('answer').get\n",
    }
    if with_cuda:
        files["kernels/answer.cu"] = '#include "kernels/answer.h"\n' + KERNEL
    write_files(folder, files)
    return folder


@pytest.fixture
def project(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(this_process, "in_background", {})
    return write_project(tmp_path / "project")


def test_op_is_found_in_the_current_project_and_in_that_of_the_caller(
    project, tmp_path, monkeypatch
):
    caller = {"load_op": jit_loader.load_op}
    for path, folder in ((tmp_path / "run.py", project), (project / "scripts/run.py", tmp_path)):
        monkeypatch.chdir(folder)
        exec(compile("module = load_op('answer')", str(path), "exec"), caller)
        assert caller.pop("module").get() == 42


@pytest.mark.slow
def test_op_that_nobody_waits_for_has_its_flags_and_the_current_files(project, wait_for):
    def load():
        flags = {"extra_cflags": ["-DANSWER=5"]}
        return jit_loader.load_op("answer", project=str(project), wait=False, **flags)

    kernel = project / "kernels" / "answer_cpu.cpp"
    kernel.write_text("long answer() { return ANSWER; }\n")
    assert load() is None
    (background,) = this_process.in_background.values()
    assert background.wait() == 0
    kernel.write_text("long answer() { return 1 + ANSWER; }\n")
    wait_for(lambda: load() is not None)
    assert load().get() == 6
    assert not jit_loader.loaded("answer").compiled, "another process has built it"


@pytest.mark.slow
def test_failed_op_that_nobody_waits_for_is_reported_once(project, wait_for, monkeypatch, capfd):
    monkeypatch.delenv("JIT_LOADER_QUIET")
    (project / "kernels" / "answer_cpu.cpp").write_text("int a = ;\n")
    said = []

    def has_failed():
        assert jit_loader.load_op("answer", project=str(project), wait=False) is None
        said.append(capfd.readouterr().err)
        return "python -m jit_loader build answer" in said[-1]

    wait_for(has_failed)
    for _ in range(3):
        assert not has_failed(), "it is reported once"


def test_op_that_nobody_waits_for_is_not_built_if_compiling_is_forbidden(project, monkeypatch):
    monkeypatch.setenv("JIT_LOADER_NO_COMPILE", "1")
    for _ in range(2):
        assert jit_loader.load_op("answer", project=str(project), wait=False) is None
    assert list(this_process.in_background.values()) == [None]


@pytest.mark.parametrize("options", [{"defines": {"SIZE": 2}}, {"on_load": print}], ids=repr)
def test_op_that_nobody_waits_for_has_no_variants_and_no_callbacks(project, options):
    with pytest.raises(ValueError, match=r"load_op\('answer'\): wait=False takes neither"):
        jit_loader.load_op("answer", project=project, wait=False, **options)


@pytest.mark.skipif(not toolchain.cpu_flags(), reason="no x86-64 level is used here")
def test_only_kernels_use_this_machines_processor_unless_the_caller_names_one(project):
    has = "#ifdef __SSE3__\n#define HAS_SSE3 1\n#else\n#define HAS_SSE3 0\n#endif\n"
    (project / "kernels" / "answer.h").write_text(has + HEADER)
    kernel, binding = project / "kernels" / "answer_cpu.cpp", project / "bindings" / "answer.cpp"
    kernel.write_text(kernel.read_text().replace("42", "HAS_SSE3"))
    binding.write_text(BINDING.replace("answer()", "10 * answer() + HAS_SSE3", 1))
    assert jit_loader.load_op("answer", project=project).get() == 10
    native = jit_loader.load_op("answer", project=project, extra_cflags=["-march=native"])
    assert native.get() == 11


def test_edited_kernel_reaches_all_callers(project):
    seen = []
    for _ in range(2):
        old = jit_loader.load_op("answer", project=str(project), on_load=seen.append)
    assert seen == [old, old]
    (project / "kernels" / "answer_cpu.cpp").write_text("long answer() { return 43; }\n")
    new = jit_loader.load_op("answer", project=str(project))
    assert (old.get(), new.get()) == (42, 43)
    jit_loader.load_op("answer", project=str(project))
    assert seen == [old, old, new], "a function is called once for each new module"


def test_flags_may_be_one_string_as_in_load(project):
    (project / "kernels" / "answer_cpu.cpp").write_text("long answer() { return ANSWER; }\n")
    flags = {"extra_cflags": "-DANSWER=5", "extra_ldflags": "", "extra_cuda_cflags": None}
    assert jit_loader.load_op("answer", project=str(project), **flags).get() == 5


def test_each_caller_gets_the_flags_that_it_passes(project):
    def wrapper(flags):
        source = f"module = load_op('answer', extra_cflags={flags}, on_load=seen.append)"
        exec(compile(source, str(project / "bindings" / "answer.py"), "exec"), outside)

    seen = []
    outside = {"load_op": jit_loader.load_op, "seen": seen}
    kernel = "#ifndef ANSWER\n#define ANSWER {}\n#endif\nlong answer() {{ return ANSWER; }}\n"
    (project / "kernels" / "answer_cpu.cpp").write_text(kernel.format(6))
    wrapper(["-DANSWER=5"])
    assert seen[-1].get() == 5
    assert jit_loader.load_op("answer", project=str(project)).get() == 6
    assert [module.get() for module in seen] == [5], "the wrapper has requested other flags"
    wrapper([])  # executed again, as in a notebook after an edit
    (project / "kernels" / "answer_cpu.cpp").write_text(kernel.format(7))
    assert jit_loader.load_op("answer", project=str(project)).get() == 7
    assert [module.get() for module in seen] == [5, 6, 7]
    jit_loader.load_op("answer", project=str(project), extra_cflags=["-DANSWER=5"])
    assert len(seen) == 3, "the wrapper no longer uses the build with its former flags"


def test_every_spelling_of_the_project_means_the_same(project, monkeypatch, tmp_path):
    monkeypatch.chdir(project)
    (tmp_path / "link").symlink_to(project)
    module = jit_loader.load_op("answer", project=str(project))
    spellings = [".", project, str(tmp_path / "link"), f"{project}/kernels/.."]
    assert all(jit_loader.load_op("answer", project=p) is module for p in spellings)


def test_without_nvcc_the_op_is_built_for_the_cpu(cache, tmp_path, monkeypatch):
    monkeypatch.setattr("_jit_loader.key.toolchain.nvcc_path", lambda: None)
    project = write_project(tmp_path / "project", with_cuda=True)
    module = jit_loader.load_op("answer", project=str(project))
    assert module.get() == 42
    assert module.cuda() == -1
    assert not jit_loader.loaded("answer").with_cuda
    reason = jit_loader.why_no_cuda()
    assert "nvcc was not found" in reason if torch.version.cuda else "without CUDA" in reason


@pytest.mark.slow
@pytest.mark.nvcc
def test_cuda_build_in_the_cache_is_used_without_nvcc(cache, tmp_path, monkeypatch):
    project = write_project(tmp_path / "project", with_cuda=True)
    module = jit_loader.load_op("answer", project=str(project))
    monkeypatch.setattr("_jit_loader.key.toolchain.nvcc_path", lambda: None)
    assert jit_loader.load_op("answer", project=str(project)) is module


def test_flags_name_the_gpus_or_the_default_architecture(monkeypatch):
    def flags(architectures, extra=()):
        found = toolchain.architecture_flags(extra, machine.Machine("AVX2", architectures))
        return [flag.removeprefix("-gencode=arch=compute_") for flag in found]

    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    assert flags([]) == ["80,code=sm_80"]
    assert flags(["8.9", "9.0"]) == ["89,code=sm_89", "90,code=sm_90"]
    assert flags([], ["-gencode=arch=compute_75,code=sm_75"]) == []
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0")
    assert flags([]) == []


@pytest.mark.gpu
def test_the_search_for_gpus_does_not_start_cuda(python):
    script = """
import os, torch
from _jit_loader.key import machine
assert machine.gpu_architectures()
pid = os.fork()
if pid == 0:
    torch.zeros(1, device="cuda")
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    python("-c", script, check=True)


@pytest.mark.slow
def test_installed_loader_works_in_another_project(tmp_path):
    """`pip install .` installs only the loader; kernels/ and bindings/ are the other project's."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "jit_loader.py"):
        shutil.copy(ROOT / name, source)
    for name in ("_jit_loader", "kernels", "bindings"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    site = tmp_path / "site"
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    shipped = {path.name for path in site.iterdir() if "dist-info" not in path.name}
    assert shipped - {"__pycache__", "bin"} == {"jit_loader.py", "_jit_loader"}
    assert (site / "_jit_loader/commands/in_children/sitecustomize.py").exists()

    def run(code, cwd):
        cache = str(tmp_path / "cache")
        environment = {**os.environ, "PYTHONPATH": str(site), "JIT_LOADER_CACHE": cache}
        return subprocess.check_output([sys.executable, "-c", code], cwd=cwd, env=environment)

    own = tmp_path / "own"
    own.mkdir()
    # The import of PyTorch would take 2 s, and setup.py does not need it.
    new = "import sys; sys.modules['torch'] = None; from _jit_loader.commands import main; "
    for kind in KINDS:
        run(f"{new}sys.exit(main(['new', 'my_{kind}', '--like', '{kind}']))", own)
    helpers = [path for path in own.rglob("*.*") if "my_" not in path.name]
    assert {path.name for path in helpers} >= {"op.h", "reduction.cuh", "differentiable.py"}
    for path in helpers:
        assert path.read_bytes() == (ROOT / path.relative_to(own)).read_bytes()

    project = write_project(tmp_path / "project")
    assert run("from bindings.answer import get; print(get())", project) == b"42\n"


@pytest.mark.slow
def test_cpp_library_of_the_process_is_linked_if_g_plus_plus_lacks_it(cache, tmp_path, monkeypatch):
    """Such a g++ would link libstdc++.a, and the process would crash when it formats a number."""
    project = write_project(tmp_path / "project")
    (project / "kernels" / "answer_cpu.cpp").write_text(
        "#include <sstream>\nlong answer() { std::ostringstream text; text << 42; "
        "return std::stol(text.str()); }\n"
    )
    monkeypatch.setenv("CXX", make_compiler_without_cpp_library(tmp_path))
    assert jit_loader.load_op("answer", project=str(project)).get() == 42
    manifest = next((tmp_path / "cache").rglob("manifest.json")).read_text()
    linked = [line for line in manifest.splitlines() if "libstdc++" in line]
    assert linked
    assert all("libstdc++.so.6" in line for line in linked)


def test_traceback_keeps_the_frames_of_on_load(project, tmp_path):
    (tmp_path / "bad.cpp").write_text("int broken(;")

    def callback(module):
        jit_loader.load("bad", [str(tmp_path / "bad.cpp")])

    with pytest.raises(jit_loader.CompileError) as caught:
        jit_loader.load_op("answer", project=str(project), on_load=callback)
    assert "callback" in [entry.name for entry in caught.traceback]
