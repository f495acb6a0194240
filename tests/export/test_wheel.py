"""`export --wheel` writes a package that needs no compiler, no project and no jit_loader."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch

from _jit_loader.commands import main
from _jit_loader.key import toolchain
from tests.support.extension import ROOT, write_files

FILES = {
    # Replaces the project's own, which takes 15 s to compile.
    "bindings/autograd.cpp": """\
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "autograd", nullptr, -1};
PyMODINIT_FUNC PyInit_autograd(void) { return PyModule_Create(&definition); }
""",
    "bindings/autograd.py": """\
from .shared.loader import load_op
load_op("autograd")
def shared(): return None  # not compiled yet: ops are recorded in Python
""",
    # An op without a Python function, whose wrapper imports an op later in the alphabet.
    "bindings/early.cpp": """\
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "early", ONE == 1 ? "one" : "two", -1};
PyMODINIT_FUNC PyInit_early(void) { return PyModule_Create(&definition); }
""",
    "bindings/early.py": """\
from .plus import plus
from .shared.loader import load_op
compiled = load_op("early", defines={"ONE": True})
""",
    "bindings/__init__.py": "",
    # Uses Python's operators on tensors, so that no PyTorch header has to be compiled.
    "bindings/plus.cpp": """\
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
""",
    "bindings/plus.py": '''\
from .shared.differentiable import differentiable


@differentiable("plus(Tensor a, Tensor b) -> Tensor", extra_cflags=["-DADD_NAME=PyNumber_Add"])
def plus(a, b):
    """>>> from bindings.plus import plus"""


@plus.gradient
def _(grad):
    return grad, grad
''',
    "bindings/alias.py": "from .plus import plus as alias  # é\r\n",
    "bindings/broken.cpp": "int a = ;\n",
    "bindings/broken.py": "",
    "kernels/plus.cu": "__global__ void kernel() {}\n",  # not compiled by these tests
    "kernels/add.h": '#include "inner.h"\n',
    "kernels/inner.h": "\n",
    "kernels/unrelated.h": "\n",
}


def write_project(folder):
    write_files(folder, FILES)
    (folder / "bindings/shared").mkdir()
    for path in (ROOT / "bindings/shared").glob("*.py"):
        shutil.copy(path, folder / "bindings/shared")
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory, _warm_python):
    """Makes project/, kept/ (the wheel's project), out/ and site/ (the unpacked wheel)."""
    folder = tmp_path_factory.mktemp("wheel")
    project = write_project(folder / "project")
    arch = ["--arch", "cpu", *["x86-64-v2"] * bool(toolchain.cpu_level())]
    options = ["--wheel", "my_ops", "--out", folder / "kept"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = ["-m", "jit_loader", "export", "plus", "early", *options, *arch]
    finished = _warm_python.run(*command, cwd=project, environment=environment)
    assert finished.returncode == 0, finished.stderr
    pip = finished.stdout.partition("to make the wheel: ")[2].split()
    assert pip[:2] == ["pip", "wheel"]
    built = ["--quiet", "--wheel-dir", folder / "out"]
    subprocess.run([sys.executable, "-m", *pip, *built], check=True, capture_output=True)
    (wheel,) = (folder / "out").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder


@pytest.fixture
def use(made, python, tmp_path):
    """use(script) runs it with the wheel installed, without a compiler or jit_loader."""

    def run(script, check=False, **environment):
        environment = {"PATH": "", "PYTHONPATH": str(made / "site"), **environment}
        return python("-c", script, cwd=tmp_path, check=check, **environment)

    return run


@pytest.mark.slow
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
    use(script, check=True)


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
    use(script, check=True, PYTHONPATH=path, PATH=os.environ["PATH"])


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
    (metadata,) = (made / "site").glob("*.dist-info/METADATA")
    assert f"Requires-Dist: torch=={torch.__version__.partition('+')[0]}\n" in metadata.read_text()
    kept = {str(path.relative_to(made / "kept")) for path in (made / "kept").rglob("*.*")}
    assert {path for path in kept if path.startswith(("bindings", "kernels"))} == {
        path for path in FILES if not path.endswith(".py")
    }


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("my-ops", ["--out", "new"], "cannot name the package"),
        ("torch", ["--out", "new"], "cannot name the package"),
        ("json", ["--out", "new"], "cannot name the package"),
        ("my_ops", ["plus[A=1]", "--out", "new"], "there is no op 'plus[A=1]'"),
        ("my_ops", ["autograd", "--out", "kernels"], "File exists"),
    ],
)
def test_what_a_wheel_cannot_be_is_refused(tmp_path, monkeypatch, capsys, name, arguments, message):
    monkeypatch.chdir(write_project(tmp_path))
    assert main(["export", "--wheel", name, *arguments, "--arch", "cpu"]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_every_wrapper_of_this_project_works_in_a_wheel(tmp_path, python):
    options = ["--wheel", "my_ops", "--out", tmp_path / "new", "--arch", "8.0", "9.0"]
    python("-m", "jit_loader", "export", *options, check=True)
    setup = (tmp_path / "new" / "setup.py").read_text()
    assert "GPUS = '8.0;9.0'" in setup
    assert "'kernels/add2.cu'" in setup
    assert (tmp_path / "new" / "kernels/shared/elementwise.cuh").exists()
