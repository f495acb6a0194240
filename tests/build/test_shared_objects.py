"""An object that does not depend on the extension's name is compiled once for all names."""

import os
from pathlib import Path

import pytest

import jit_loader
from _jit_loader.cache import cache_folder, pruning
from tests.support.extension import PYTHON

# A module with any name: the macro is the name that PyTorch passes to the compiler.
NAMED = (
    PYTHON
    + """\
extern "C" long other(void);
static PyObject* value(PyObject*, PyObject*) { return PyLong_FromLong(other()); }
static PyMethodDef methods[] = {{"value", value, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "named", nullptr, -1, methods};
#define JOINED(a, b) a##b
#define INIT(name) JOINED(PyInit_, name)
"""
)
INIT = """\
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)(void) { return PyModule_Create(&definition); }
"""


@pytest.fixture
def load(tiny):
    """Returns load(name, ...), which loads two sources as an extension of any name."""
    tiny.write("named.cpp", NAMED + INIT)
    sources = [str(tiny.folder / "named.cpp"), str(tiny.folder / "other.cpp")]
    return lambda name, **options: jit_loader.load(name, sources, **options)


def shared():
    return sorted(Path(cache_folder(), "objects").rglob("*.o"))


def test_second_name_compiles_only_the_sources_that_depend_on_it(tiny, load):
    assert load("one").value() == 100
    assert tiny.compiled() == ["named.cpp", "other.cpp"]
    assert load("two").value() == 100
    assert tiny.compiled() == ["named.cpp"]
    tiny.write("other.cpp", 'extern "C" long other(void) { return 200; }\n')
    assert load("two").value() == 200
    assert tiny.compiled() == ["other.cpp"]
    assert load("one").value() == 200
    assert tiny.compiled() == []


@pytest.mark.parametrize("place", ["header", "flag", "joined"])
def test_object_is_not_shared_if_a_header_or_a_flag_has_the_name(tiny, load, place):
    flags = []
    if place == "joined":
        parts = "JOINED(TORCH_EXTENSION_, NAME)"
        tiny.write("named.cpp", NAMED + INIT.replace("TORCH_EXTENSION_NAME", parts))
    elif place == "header":
        tiny.write("init.h", INIT)
        tiny.write("named.cpp", NAMED + '#include "init.h"\n')
    else:
        tiny.write("named.cpp", NAMED + INIT.replace("TORCH_EXTENSION_NAME", "MY_NAME"))
        flags = ["-DMY_NAME=TORCH_EXTENSION_NAME"]
    for name in ("one", "two"):
        assert load(name, extra_cflags=flags).value() == 100
        assert "named.cpp" in tiny.compiled()


def test_other_flags_or_another_header_make_another_object(tiny, load):
    tiny.write("other.cpp", '#include "value.h"\nextern "C" long other(void) { return VALUE; }\n')
    assert load("one").value() == 1
    tiny.compiled()
    tiny.write("value.h", "#define VALUE 2\n")
    assert load("two").value() == 2
    assert tiny.compiled() == ["named.cpp", "other.cpp"]
    load("three", extra_cflags=["-DMORE"])
    assert tiny.compiled() == ["named.cpp", "other.cpp"]


@pytest.mark.parametrize("damage", ["object", "record", "no record"])
def test_damaged_shared_object_is_compiled_again_and_replaced(tiny, load, damage):
    load("one")
    tiny.compiled()
    (path,) = shared()
    good = path.read_bytes()
    record = Path(f"{path}.json")
    if damage == "no record":
        record.unlink()
    else:
        damaged = path if damage == "object" else record
        damaged.write_bytes(damaged.read_bytes()[:-10])
    assert load("two").value() == 100
    # If the damage is found while the others compile, the build begins again.
    assert {*tiny.compiled()} == {"named.cpp", "other.cpp"}
    assert load("three").value() == 100
    assert tiny.compiled() == ["named.cpp"]
    assert path.read_bytes() == good


def test_object_of_a_failed_build_is_shared(tiny, load):
    tiny.write("named.cpp", "broken")
    with pytest.raises(jit_loader.CompileError):
        load("one")
    tiny.write("named.cpp", NAMED + INIT)
    tiny.compiled()
    assert load("two").value() == 100
    assert tiny.compiled() == ["named.cpp"]


def test_shared_objects_are_removed_with_the_last_build_that_uses_them(tiny, load):
    load("one")
    load("two")
    pruning.clean(["one"])
    assert len(shared()) == 1
    pruning.clean(["two"])
    assert shared() == []
    assert pruning.Usage(os.path.join(cache_folder(), "objects")).size == 0
    tiny.compiled()
    load("one")
    assert tiny.compiled() == ["named.cpp", "other.cpp"]


def test_limit_removes_shared_objects_with_their_builds(tiny, load, monkeypatch):
    load("one")
    monkeypatch.setenv("JIT_LOADER_CACHE_LIMIT", "1B")
    tiny.write("other.cpp", 'extern "C" long other(void) { return 200; }\n')
    load("two")
    assert len(shared()) == 1


@pytest.mark.slow
def test_at_most_16_versions_of_a_shared_object_are_kept(tiny, load):
    for value in range(20):
        tiny.write("other.cpp", f'extern "C" long other(void) {{ return {value}; }}\n')
        load("one")
    assert len(shared()) == 16


def test_cache_that_cannot_share_objects_still_builds(tiny, load):
    Path(cache_folder(), "objects").write_text("a file in the place of the folder")
    for name in ("one", "two"):
        assert load(name).value() == 100
        assert tiny.compiled() == ["named.cpp", "other.cpp"]
