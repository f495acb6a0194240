"""`export --wheel` builds a package that needs no compiler, no project and no jit_loader."""

import os
import re
import shutil
import zipfile
from pathlib import Path

import pytest
import torch

from _jit_loader.commands.main import main
from _jit_loader.export import package, setup_values, wheel
from _jit_loader.export.imports import check_for_wheel
from _jit_loader.key import toolchain

ROOT = Path(__file__).resolve().parents[2]

# Uses Python's operators on tensors, so that no PyTorch header has to be compiled.
BINDING = """\
#include <Python.h>
#include "kernels/add.h"
static PyObject* forward(PyObject*, PyObject* args) {
  return ADD_NAME(PyTuple_GET_ITEM(args, 0), PyTuple_GET_ITEM(args, 1));
}
static PyObject* decline(PyObject*, PyObject*) { Py_RETURN_NOTIMPLEMENTED; }
static PyMethodDef decline_method = {"decline", decline, METH_VARARGS, ""};
static PyObject* make(PyObject*, PyObject*) { return PyCFunction_New(&decline_method, nullptr); }
static PyMethodDef methods[] = {{"forward", forward, METH_VARARGS, ""},
                                {"differentiable_forward", make, METH_VARARGS, ""},
                                {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "plus", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_plus(void) { return PyModule_Create(&definition); }
"""
WRAPPER = '''\
from .shared.differentiable import differentiable


@differentiable("plus(Tensor a, Tensor b) -> Tensor", extra_cflags=["-DADD_NAME=PyNumber_Add"])
def plus(a, b):
    """>>> from bindings.plus import plus"""


@plus.gradient
def _(grad):
    return grad, grad
'''
# Replaces the project's own, which takes 15 s to compile.
AUTOGRAD = """\
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "autograd", nullptr, -1};
PyMODINIT_FUNC PyInit_autograd(void) { return PyModule_Create(&definition); }
"""
# An op without a Python function, whose wrapper imports an op later in the alphabet.
EARLY = """\
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "early", ONE == 1 ? "one" : "two", -1};
PyMODINIT_FUNC PyInit_early(void) { return PyModule_Create(&definition); }
"""
FILES = {
    "bindings/autograd.cpp": AUTOGRAD,
    "bindings/early.cpp": EARLY,
    "bindings/early.py": """\
from .plus import plus
from .shared.loader import load_op
compiled = load_op("early", defines={"ONE": True})
""",
    "bindings/__init__.py": "",
    "bindings/plus.cpp": BINDING,
    "bindings/plus.py": WRAPPER,
    "bindings/alias.py": "from .plus import plus as alias  # é\r\n",
    "bindings/broken.cpp": "int a = ;\n",
    "kernels/plus.cu": "__global__ void kernel() {}\n",  # not compiled by these tests
    "kernels/add.h": '#include "inner.h"\n',
    "kernels/inner.h": "\n",
    "kernels/unrelated.h": "\n",
}


def write_project(folder):
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    (folder / "bindings/shared").mkdir()
    shutil.copy(ROOT / "bindings/autograd.py", folder / "bindings")
    for path in (ROOT / "bindings/shared").glob("*.py"):
        shutil.copy(path, folder / "bindings/shared")
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory, _warm_python):
    """Makes a folder with project/, kept/ (the wheel's project) and site/ (the unpacked wheel)."""
    folder = tmp_path_factory.mktemp("wheel")
    project = write_project(folder / "project")
    arch = ["--arch", "cpu", *["x86-64-v2"] * bool(toolchain.cpu_level())]
    options = ["--wheel", "my_ops", "--out", folder / "out", "--keep-project", folder / "kept"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = ["-m", "jit_loader", "export", "alias", "early", *options, *arch]
    finished = _warm_python.run(*command, cwd=project, environment=environment)
    assert finished.returncode == 0, finished.stderr
    (built,) = (folder / "out").iterdir()
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "site")
    return folder


@pytest.fixture
def use(made, python, tmp_path):
    """use(script) runs it with the wheel installed, without a compiler or jit_loader."""

    def run(script, **environment):
        environment = {"PATH": "", "PYTHONPATH": str(made / "site"), **environment}
        return python("-c", script, cwd=tmp_path, **environment)

    return run


def test_ops_of_a_wheel_have_gradients(use):
    script = """
import sys, torch
from my_ops.alias import alias
from my_ops.plus import plus
assert alias is plus
a, b = torch.randn(2, 3, requires_grad=True), torch.randn(3, requires_grad=True)
assert torch.equal(plus(a, b), a + b)
plus(a, b).sum().backward()
assert b.grad.tolist() == [2, 2, 2]
assert "jit_loader" not in sys.modules
"""
    finished = use(script)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.slow
def test_wheel_and_its_project_work_in_one_process(made, use):
    script = """
import torch
from my_ops.plus import plus
from bindings.plus import plus as here
assert plus is not here
a = torch.ones(3, requires_grad=True)
both = torch.compile(lambda x: plus(x, x) * here(x, x), fullgraph=True, backend="aot_eager")
both(a).sum().backward()
assert a.grad.tolist() == [8, 8, 8]
assert torch.ops.my_ops.plus.default is not torch.ops.jit_loader.plus.default
"""
    path = os.pathsep.join(map(str, (made / "site", made / "project", ROOT)))
    finished = use(script, PYTHONPATH=path, PATH=os.environ["PATH"])
    assert finished.returncode == 0, finished.stderr


def test_only_variants_in_the_wheel_can_be_loaded(use):
    script = """
import my_ops.early
from my_ops.compiled import load_op
assert my_ops.early.compiled.__doc__ == "one"
assert load_op("early", defines={"ONE": 1}) is my_ops.early.compiled
load_op("early", defines={"ONE": 2})
"""
    stderr = use(script).stderr
    assert "ImportError: my_ops has early only with the macros {'ONE': '1'}, not with" in stderr


BUILT_FOR = """
import my_ops, sys, types
built_for = sys.modules["my_ops.compiled.built_for"] = types.ModuleType("built_for")
built_for.PYTORCH, built_for.PROCESSOR = torch.__version__, "x86-64-v9"
"""


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("torch.__version__ = '9.9.9'", "and this is PyTorch 9.9.9: install that PyTorch"),
        (BUILT_FOR, "for processors of level x86-64-v9, and this one is x86-64-v"),
    ],
)
def test_import_with_another_pytorch_or_processor_is_refused(use, before, message):
    finished = use(f"import torch\n{before}\nimport my_ops.plus")
    assert "ImportError: my_ops was compiled for " in finished.stderr
    assert message in finished.stderr


def test_wheel_and_its_project_have_only_the_needed_files(made):
    (wheel,) = (made / "out").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        package_files = {path for path in archive.namelist() if path.startswith("my_ops/")}
    libraries = {path.name for path in (made / "site/my_ops/compiled").glob("*.so")}
    assert {name.partition(".")[0] for name in libraries} == {"autograd", "early", "plus"}
    shared = {f"shared/{path.stem}" for path in (ROOT / "bindings/shared").glob("*.py")}
    modules = {"__init__", "alias", "autograd", "early", "plus"} | shared
    assert package_files == {
        *(f"my_ops/{name}.py" for name in modules),
        *("my_ops/compiled/__init__.py", "my_ops/compiled/built_for.py"),
        *(f"my_ops/compiled/{name}" for name in libraries),
    }
    kept = {str(path.relative_to(made / "kept")) for path in (made / "kept").rglob("*.*")}
    sources = {
        "bindings/autograd.cpp",
        "bindings/early.cpp",
        "bindings/plus.cpp",
        "kernels/plus.cu",
        "kernels/add.h",
        "kernels/inner.h",
    }
    assert {path for path in kept if path.startswith(("bindings", "kernels"))} == sources


def test_wrappers_are_copied_without_changes(made):
    for wrapper in (made / "project/bindings").rglob("*.py"):
        path = wrapper.relative_to(made / "project/bindings")
        if path != Path("shared/loader.py"):
            for package_folder in (made / "site/my_ops", made / "kept/my_ops"):
                assert (package_folder / path).read_bytes() == wrapper.read_bytes()


def test_wheel_requires_the_pytorch_that_built_it(made):
    (metadata,) = (made / "site").glob("*.dist-info/METADATA")
    version = torch.__version__.partition("+")[0]
    assert f"Requires-Dist: torch=={version}\n" in metadata.read_text()


@pytest.mark.slow
def test_compile_error_names_the_file_and_leaves_no_wheel(tmp_path, python):
    project = write_project(tmp_path / "project")
    out = tmp_path / "out"
    kept = tmp_path / "kept"
    options = ["--wheel", "my_ops", "--out", str(out), "--arch", "cpu", "--keep-project", kept]
    finished = python("-m", "jit_loader", "export", "broken", *options, cwd=project)
    assert not kept.exists(), "the next run would be refused"
    assert finished.returncode == 1
    assert "my_ops: bindings/broken.cpp:1:9: error: " in finished.stderr
    assert [path.name for path in out.iterdir()] == ["my_ops.log"]


def test_error_names_a_setuptools_that_is_too_old(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "65.5.0")
    with pytest.raises(
        RuntimeError, match=r'and 65\.5\.0 is installed\. Run: pip install "setuptools>=77"'
    ):
        wheel.build_wheel("my_ops", {}, str(tmp_path), with_cuda=False)


def test_wheel_of_a_variant_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a wheel has one build of an op"):
        package.package_files("my_ops", ["plus[A=1]"], str(tmp_path), "v3", "")


@pytest.mark.parametrize("name", ["my-ops", "class", "torch", "bindings", "json", "My", ""])
def test_invalid_package_names_are_refused(name):
    with pytest.raises(ValueError, match="cannot name the package"):
        package.check_name(name)


def test_flags_are_split_into_words_in_order():
    flags = {
        "extra_cflags": ["-I /a", "-include", "'b c.h'"],
        "extra_cuda_cflags": [],
        "extra_ldflags": ["-lm"],
        "defines": {"TEXT": '"x y"'},
    }
    assert setup_values._own_flags(flags) == {
        "cxx": ['-DTEXT="x y"', "-I", "/a", "-include", "b c.h"],
        "nvcc": ['-DTEXT="x y"'],
        "link": ["-lm"],
    }


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("from bindings.two import two", "from .NAME import ..."),
        ("import os, bindings.two as t", "from .NAME import ..."),
        ("import jit_loader", "from .shared.loader import load_op"),
        ("from jit_loader import load, load_op", "from .shared.loader import load_op"),
        ("torch.ops.jit_loader.one(x)", "getattr(torch.ops, NAMESPACE)"),
    ],
)
def test_names_that_a_wheel_does_not_have_are_refused(text, advice):
    with pytest.raises(ValueError, match="does not work in a wheel") as raised:
        check_for_wheel(f"import os\n{text}\n", "one")
    assert str(raised.value).startswith("bindings/one.py:2: `")
    assert f"Write: {advice}" in str(raised.value)
    inside = f"def f():\n    {text}\n"
    with pytest.raises(ValueError, match=re.escape(advice.replace("from .", "from .."))):
        check_for_wheel(inside, "shared.one")


def test_export_names_a_wrapper_that_does_not_work_in_a_wheel(tmp_path, python):
    project = write_project(tmp_path)
    (tmp_path / "bindings/early.py").write_text(
        "from jit_loader import load_op\nload_op('early')\n"
    )
    options = ["--wheel", "my_ops", "--out", str(tmp_path / "out"), "--arch", "cpu"]
    finished = python("-m", "jit_loader", "export", "early", *options, cwd=project)
    assert finished.returncode == 1
    assert "bindings/early.py:1: `from jit_loader import load_op`" in finished.stderr


def test_every_wrapper_of_this_project_works_in_a_wheel():
    for wrapper in (ROOT / "bindings").rglob("*.py"):
        module = ".".join(wrapper.relative_to(ROOT / "bindings").with_suffix("").parts)
        if module != "shared.loader":
            check_for_wheel(wrapper.read_text(), module)


def test_keep_project_does_not_overwrite_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(write_project(tmp_path))
    options = ["--wheel", "my_ops", "--out", str(tmp_path / "out"), "--arch", "cpu"]
    assert main(["export", *options, "--keep-project", str(tmp_path)]) == 1
    assert "already exists" in capsys.readouterr().err
