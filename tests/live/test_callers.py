"""Loads are live edits for all callers, in all processes; one complete build follows."""

import glob
import os
import re
import shutil
import time

import pytest
import torch

import jit_loader
from _jit_loader import this_process
from _jit_loader.cache import MANIFEST, cache_folder
from _jit_loader.cache.files import read_checked
from _jit_loader.cache.lock import is_locked
from _jit_loader.cuda.halves import IN_TURN
from _jit_loader.live import load as live
from _jit_loader.live.edit import LIVE as LIVE_FILE
from _jit_loader.notebook.inline_cell import compile_cell
from tests.cache.test_registrations import PLAIN
from tests.live.test_load_edit import first_builds, no_builds  # noqa: F401  a fixture
from tests.support import answer
from tests.support.extension import binding, edit, write, write_files
from tests.support.nvrtc import needs_nvccs_version

pytestmark = [pytest.mark.nvcc, needs_nvccs_version]

# That of the op 'answer', without its header.
KERNEL = "__device__ long value() { return 42; }\n" + answer.KERNEL.partition("\n")[2]
KERNEL = KERNEL.replace("*to = 42", "*to = value()").replace("answer_of_gpu", "on_gpu")
OTHER = re.sub(r"value|on_gpu|of_host|write_answer", r"other_\g<0>", KERNEL).replace("42", "7")
# The host code has the path of the file and numbers of lines, as TORCH_CHECK has.
FILE = "long at(const char*, int l) { return l; }\nlong line() { return at(__FILE__, __LINE__); }\n"
FILE += "const char* file() { return __FILE__; }\n"
BOTH = "long on_gpu();\nlong other_on_gpu();\n"
BINDING = binding("scale", "long on_gpu();\n", gpu="on_gpu()")
OPERATORS = f"""{PLAIN}int STABLE_TORCH_LIBRARY_static_init_live = [] {{
  void* m;
  if (aoti_torch_library_init_def("live", "", 0, &m)) throw 1;
  return aoti_torch_library_def(m, "f(int x) -> int");
}}();
}} }}
"""
CALL = "jit_loader.load('scale', ['scale.cpp', 'scale.cu'])"
SCRIPT = f"""\
import jit_loader
print({CALL}.gpu(), jit_loader.loaded("scale").compiled)
"""
# A rank of torchrun waits until all have started.
RANK = f"""\
import glob, os, time
import jit_loader
open("started" + os.environ["RANK"], "w").close()
while len(glob.glob("started*")) < 4:
    time.sleep(0.01)
print({CALL}.gpu())
"""
PROJECTS = {
    "one": {"scale.cpp": BINDING, "scale.cu": KERNEL},
    "operators": {"scale.cpp": BINDING + OPERATORS, "scale.cu": KERNEL},
    "two": {
        "scale.cpp": binding("scale", BOTH, gpu="on_gpu()", other="other_on_gpu()"),
        "scale.cu": KERNEL,
        "other.cu": OTHER,
    },
}


class Sources:
    """The sources of an extension of load, in the current folder."""

    def __init__(self, folder, name):
        self.names = list(PROJECTS[name])
        self.folder = folder
        write_files(folder, PROJECTS[name])

    def load(self, **options):
        return jit_loader.load("scale", [str(self.folder / name) for name in self.names], **options)

    def edit(self, old="return 42", new="return 43", name="scale.cu"):
        edit(self.folder / name, old, new)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return first_builds(tmp_path_factory, lambda *project: Sources(*project).load())


@pytest.fixture
def sources_of(built, tmp_path, monkeypatch):
    """Returns a function that returns Sources whose first build is in a private cache."""

    def get(name):
        shutil.copytree(built(name), tmp_path / "cache", symlinks=True)
        return Sources(tmp_path, name)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JIT_LOADER_QUIET")
    live.ops.clear()
    yield get
    for op in live.ops.values():
        if op.process is not None:
            op.process.terminate()
    wait_for_builds()


@pytest.fixture
def sources(sources_of):
    return sources_of("one")


def wait_for_builds():
    """Waits until no process makes a complete build of a live edit."""
    while any(map(is_locked, glob.glob(os.path.join(cache_folder(), "background", "*")))):
        time.sleep(0.05)


def builds(name="scale"):
    return glob.glob(os.path.join(cache_folder(), name, "*", "*", MANIFEST))


def on_gpu(value):
    return value if torch.cuda.is_available() else -1


def results(*functions):
    """Returns their results. Without a GPU nothing is launched: an error would be printed."""
    return [function() for function in functions] if torch.cuda.is_available() else None


def expected(*values):
    return [*values] if torch.cuda.is_available() else None


LIVE = re.compile(
    r"scale: scale\.cu changed: new device code in [\d.]+ s; the complete build follows"
)


def test_the_first_load_of_a_process_is_live_and_the_next_process_has_the_build(sources, python):
    sources.edit()
    first = python("-c", SCRIPT, cwd=sources.folder, check=True)
    assert LIVE.search(first.stderr)
    assert first.stdout.split() == [str(on_gpu(43)), "True"]
    wait_for_builds()
    assert len(builds()) == 2
    second = python("-c", SCRIPT, cwd=sources.folder, check=True)
    assert second.stderr == ""
    assert second.stdout.split() == [str(on_gpu(43)), "False"]


@pytest.mark.slow
def test_ranks_are_live_and_make_one_complete_build(sources, torchrun):
    sources.edit()
    write(sources.folder / "rank.py", RANK)
    finished = torchrun(4, "rank.py", cwd=sources.folder, check=True)
    assert len(LIVE.findall(finished.stderr)) == 4
    assert finished.stdout.split() == [str(on_gpu(43))] * 4
    assert len({*os.listdir(os.path.join(cache_folder(), "background"))} - {"lock"}) == 1
    wait_for_builds()
    assert len(builds()) == 2


def test_copies_of_a_project_keep_their_own_kernels(sources, capfd):
    """Their requests are equal, because paths in a request are those within its project."""
    first, copy = sources.load(), Sources(sources.folder / "copy", "one")
    copy.edit()
    second = copy.load()
    assert not LIVE.search(capfd.readouterr().err)
    assert results(first.gpu, second.gpu) == expected(42, 43)
    assert first is not second


def test_a_setting_forbids_a_live_edit(sources, monkeypatch):
    sources.edit()
    monkeypatch.setenv("JIT_LOADER_NO_COMPILE", "1")
    with pytest.raises(RuntimeError, match="JIT_LOADER_NO_COMPILE is set"):
        sources.load()


@pytest.mark.slow
def test_after_a_failed_complete_build_the_next_process_makes_it_again(sources, python):
    sources.edit()
    limit = {"JIT_LOADER_COMPILE_TIMEOUT": "0.1"}  # a compiler that takes longer is killed
    assert LIVE.search(python("-c", SCRIPT, cwd=sources.folder, **limit).stderr)
    wait_for_builds()
    assert len(builds()) == 1
    second = python("-c", SCRIPT, cwd=sources.folder, check=True)
    assert "scale.cu changed: built in" in second.stderr
    assert second.stdout.split() == [str(on_gpu(43)), "True"]


@pytest.mark.slow
@pytest.mark.usefixtures("no_builds")
def test_two_sources_with_device_code_may_change(sources_of, capfd):
    sources = sources_of("two")
    module = sources.load()
    assert results(module.gpu, module.other) == expected(42, 7)
    sources.edit()
    assert sources.load() is module
    assert results(module.gpu, module.other) == expected(43, 7)
    sources.edit("return 43", "return 44")
    sources.edit("return 7", "return 8", "other.cu")
    assert sources.load() is module
    assert results(module.gpu, module.other) == expected(44, 8)
    assert "scale: other.cu, scale.cu changed: new device code in" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("is_python_module", [True, False])
def test_a_library_that_registers_operators_keeps_its_new_kernels(
    sources_of, python, is_python_module
):
    sources = sources_of("operators")
    options = {"is_python_module": is_python_module}
    write(
        sources.folder / "script.py",
        f"""\
import pathlib, time
import torch
import jit_loader
from tests.live import test_callers as this
sources = this.Sources(pathlib.Path("."), "operators")
options = {options}
first = sources.load(**options)
sources.edit()
assert sources.load(**options) == first
this.wait_for_builds()
assert sources.load(**options) == first, "the complete build is not opened"
assert not jit_loader.loaded("scale").compiled
sources.edit("return 43", "return 44")
assert sources.load(**options) == first
if options["is_python_module"]:
    assert first.gpu() == this.on_gpu(44)
sources.edit("return x;", "return x + 1;")
try:
    sources.load(**options)
except RuntimeError as error:
    print(error)
""",
    )
    if not is_python_module:
        python("-c", CALL_LIBRARY, cwd=sources.folder, check=True)
    finished = python("script.py", cwd=sources.folder, check=True)
    assert "new device code" in finished.stderr
    assert "scale registers operators or classes" in finished.stdout


CALL_LIBRARY = f"import jit_loader\n{CALL[:-1]}, is_python_module=False)"


@pytest.mark.slow
def test_a_build_directory_gets_the_complete_build(sources, tmp_path):
    folder = tmp_path / "directory"
    folder.mkdir()
    module = sources.load(build_directory=str(folder))
    sources.edit()
    assert sources.load(build_directory=str(folder)) is module
    assert this_process.from_build_directory("scale", str(folder), True) is module
    assert results(module.gpu) == expected(43)
    before = os.stat(folder / "scale.so").st_ino
    wait_for_builds()
    assert (complete := os.stat(folder / "scale.so").st_ino) != before
    sources.edit("long on_gpu", "missing on_gpu")
    with pytest.raises(jit_loader.CompileError):
        sources.load(build_directory=str(folder))
    assert os.stat(folder / "scale.so").st_ino == complete
    sources.edit("missing on_gpu", "long on_gpu")
    assert sources.load(build_directory=str(folder)) is not module


def load_text(number, more=""):
    text = KERNEL.replace("return 42", "\n" * number + f"return {number}") + FILE + more
    return jit_loader.load_inline("scale", BINDING, cuda_sources=text, no_implicit_headers=True)


@pytest.mark.usefixtures("sources", "no_builds")
def test_texts_of_load_inline_are_edits_and_have_their_own_modules(capfd):
    first = load_text(1)
    capfd.readouterr()
    second = load_text(2)
    assert "scale: cuda.cu changed: new device code in" in capfd.readouterr().err
    assert load_text(2) is second
    third = load_text(3)
    assert results(first.gpu, second.gpu, third.gpu) == expected(1, 2, 3)
    assert load_text(1) is first
    assert results(first.gpu, second.gpu, third.gpu) == expected(1, 2, 3)
    assert len({module.__file__ for module in (first, second, third)}) == 3
    load_text(4, "int more;\n")  # host code: no further copy is opened
    with open("/proc/self/maps") as maps:
        assert len({*re.findall(r"\S+/scale.so(?= \(deleted)", maps.read())}) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("sources")
def test_the_complete_build_of_a_text_has_the_same_host_code(capfd, monkeypatch):
    # The text is longer than a word of a command may be.
    more = f"namespace {{ {OTHER} }}\nvoid other() {{ other_on_gpu(); }}\n// {'long ' * 40_000}\n"
    for number in (1, 2):
        monkeypatch.setenv("MAX_JOBS", str(3 - number))
        load_text(number, more)
    wait_for_builds()
    capfd.readouterr()
    load_text(2, more)
    assert not jit_loader.loaded("scale").compiled
    assert not live.ops
    build = os.path.dirname(jit_loader.loaded("scale").path)
    (answer,) = read_checked(os.path.join(build, LIVE_FILE)).values()
    assert answer["reason"] is None
    with open(os.path.join(build, "build.ninja")) as file:
        assert IN_TURN in file.read()
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.usefixtures("sources", "no_builds")
def test_cells_are_edits(capfd):
    cell = "#ifndef __CUDACC__  // it takes nvcc seconds\n#include <pybind11/pybind11.h>\n#endif\n"
    cell += KERNEL
    first = compile_cell(cell, ["on_gpu", "-O0"], cuda=True)["on_gpu"]
    capfd.readouterr()
    edited = cell.replace("return 42", "return 43")
    second = compile_cell(edited, ["on_gpu", "-O0"], cuda=True)["on_gpu"]
    assert "cell_on_gpu: cuda.cu changed: new device code in" in capfd.readouterr().err
    assert results(first, second) == expected(42, 43)


@pytest.mark.slow
@pytest.mark.usefixtures("no_builds")
def test_a_list_of_variants_and_the_command_build_make_complete_builds(sources, tmp_path):
    project = tmp_path / "project"
    write_files(project, answer.FILES)
    kernel = project / "kernels/answer.cu"
    defines = [{"SIZE": 1}, {"SIZE": 2}]
    jit_loader.load_op("answer", project=str(project), defines=defines)
    edit(kernel, "*to = 42", "*to = 43")
    jit_loader.load_op("answer", project=str(project), defines=defines)
    assert not live.ops
    jit_loader.load_op("answer", project=str(project), defines=defines[0])
    edit(kernel, "*to = 43", "*to = 44")
    jit_loader.load_op("answer", project=str(project), defines=defines[0])
    assert len(live.ops) == 1


@pytest.mark.usefixtures("no_builds")
def test_load_many_makes_live_edits_of_files(sources, capfd):
    sources.load()
    sources.edit()
    names = [str(sources.folder / name) for name in sources.names]
    (outcome,) = jit_loader.load_many([{"name": "scale", "sources": names}])
    assert LIVE.search(capfd.readouterr().err)
    assert outcome.compiled
    assert outcome.kernels == [], "their registers are not known yet"
    assert results(outcome.module.gpu) == expected(43)
