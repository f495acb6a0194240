"""Errors say what is wrong and what to do; the next load after the correction succeeds."""

import errno
import importlib.util
import os
import pickle
import shutil
import threading
from pathlib import Path

import pytest

import jit_loader
from tests.support.extension import MODULE, OTHER, binding, write_files


def test_error_lists_further_errors_and_ends_like_pytorchs(tiny):
    """Programs look for PyTorch's sentence, and read the errors or the compilers' output."""
    tiny.write("other.cpp", "".join(f"int a{i} = ;\n" for i in range(30)))
    error = tiny.error(extra_cflags=["-fmax-errors=0"])
    lines = str(error).splitlines()
    assert "  and 29 more errors" in lines[:10]
    further = [line for line in lines if line.startswith("other.cpp:")]
    assert further == lines[-21:-1]
    assert further[0].startswith("other.cpp:2: error: ")
    assert lines[-1] == "Error building extension 'tiny'"
    assert isinstance(error, RuntimeError), "as torch.utils.cpp_extension.load raises"
    assert "int a29 = ;" in error.output
    log = next(line for line in lines if "full compiler output" in line)
    assert "int a29" in Path(log.split(": ")[1]).read_text()
    assert (error.file, error.line) == (str(tiny.folder / "other.cpp"), 1)
    assert pickle.loads(pickle.dumps(error)).output == error.output


def test_fixed_source_is_built_and_good_objects_and_builds_are_kept(tiny):
    tiny.write("other.cpp", "int a = ;\n")
    tiny.error()
    tiny.compiled()
    tiny.write("other.cpp", OTHER)
    first = tiny.load()
    assert tiny.compiled() == ["other.cpp"], "module.cpp was compiled before the error"
    tiny.write("other.cpp", "int a = ;\n")
    tiny.error()
    assert first.value() == 101
    tiny.write("other.cpp", OTHER)
    tiny.compiled()
    assert tiny.load() is first
    assert tiny.compiled() == []


def test_library_that_cannot_be_opened_is_a_compile_error(tiny, tmp_path):
    """The error of a library without a module names its source, which is compiled only once."""
    tiny.write("other.cpp", 'int nope(int);\nextern "C" { int (*pointer)(int) = nope; }\n')
    for compiled in (["other.cpp"], []):
        with pytest.raises(jit_loader.CompileError) as error:
            jit_loader.load("library", tiny.sources[1], is_python_module=False)
        assert isinstance(error.value, OSError), "as torch.utils.cpp_extension.load raises"
        lines = str(error.value).splitlines()
        assert lines[0] == "library: other.cpp:1: error: undefined symbol: nope(int)"
        assert "declared, but not defined" in lines[2]
        assert Path(lines[3].split(": ")[1]).exists()
        assert tiny.compiled() == compiled
    assert not list((tmp_path / "cache").rglob("manifest.json"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("ValueError", '"not here"'),
        ("FileNotFoundError", '"not here"'),
        ("OSError", 'Py_BuildValue("(is)", 13, "not here")'),
        ("OSError", 'Py_BuildValue("(is)", 28, "not here")'),  # the disk of the cache is not full
    ],
)
def test_exception_of_a_modules_initialisation_is_raised_unchanged(tiny, kind, value):
    function = "PyErr_SetString" if value.startswith('"') else "PyErr_SetObject"
    raising = f"{function}(PyExc_{kind}, {value}); return nullptr;"
    tiny.write("module.cpp", MODULE.replace("return PyModule_Create(&definition);", raising))
    for compiled in (["module.cpp", "other.cpp"], []):
        error = tiny.error((ValueError, OSError), match=r"not here$")
        assert type(error).__name__ == ("PermissionError" if "13" in value else kind)
        assert tiny.compiled() == compiled
    tiny.write("module.cpp", MODULE)
    assert tiny.value() == 101
    assert tiny.compiled() == ["module.cpp"]


def test_failure_that_names_no_source_shows_the_compilers_error(tiny):
    tiny.error(match=r"^tiny: .* cannot read spec file .*/x", extra_cflags=["-specs=/x"])


@pytest.mark.parametrize("step", ["compilation", "link"])
def test_build_succeeds_if_the_cache_is_deleted_meanwhile(tiny, tmp_path, step):
    deleted = tmp_path / "deleted"
    delete = f"rm -rf {tmp_path}/cache; touch {deleted}"
    tiny.change_compiler(f"[ -e {deleted} ] || {{ {delete}; }}", step)
    assert tiny.value() == 101
    assert deleted.exists()


def test_compiler_message_need_not_be_utf8(tiny):
    (tiny.folder / "other.cpp").write_bytes(b'#error "\xff\xfe caf\xe9"\n')
    tiny.error(match=r"other\.cpp:1: error: ")


@pytest.mark.parametrize(("variable", "with_cuda"), [("CXX", False), ("CC", True)])
def test_open_quote_in_the_compilers_variable_is_reported(tiny, monkeypatch, variable, with_cuda):
    monkeypatch.setenv(variable, 'g++ "')
    message = rf'variable {variable}: No closing quotation: g\+\+ "'
    tiny.error(ValueError, match=message, with_cuda=with_cuda)


def test_ninja_is_found_if_the_environment_is_not_activated(tiny, monkeypatch):
    """With venv/bin/python, the environment's programs are not on PATH; ninja is one of them."""
    pytest.importorskip("ninja")
    folders = os.environ["PATH"].split(os.pathsep)
    kept = [folder for folder in folders if not os.path.exists(os.path.join(folder, "ninja"))]
    links = tiny.folder.parent / "tools"
    links.mkdir()
    for tool in ("g++", "as", "ld", "sh"):
        (links / tool).symlink_to(shutil.which(tool))
    monkeypatch.setenv("PATH", os.pathsep.join([*kept, str(links)]))
    assert tiny.value() == 101


def test_missing_source_is_named(tiny):
    (tiny.folder / "other.cpp").unlink()
    error = tiny.error(FileNotFoundError, match="there is no such source file")
    assert (error.errno, error.filename) == (errno.ENOENT, tiny.sources[1])


ONE, TWO = "#define VALUE 1\n", "#define VALUE 2\n"
SHARED = '#include "value.h"\nextern "C" long other(void) { return 99 + VALUE; }\n'
NESTED = {"value.h": '#include "v/x.h"\n', "include/v/x.h": ONE}


@pytest.mark.parametrize(
    ("files", "replaced", "source", "value"),
    [
        ({"new": 'extern "C" long other(void) { return 300; }\n'}, "other.cpp", "other", 301),
        ({**NESTED, "v/y.h": "", "new": TWO}, "v/x.h", "module", 102),  # shadows the first header
        pytest.param({"other.cpp": SHARED, "new": TWO}, "value.h", "", 103, marks=pytest.mark.slow),
    ],
    ids=["source", "new header", "header of two sources"],
)
def test_change_during_a_compilation_is_compiled(tiny, files, replaced, source, value):
    """After a compilation of `source`, the file `new` takes the place of `replaced`."""
    write_files(tiny.folder, files)
    old = shutil.copytree(tiny.folder, tiny.folder.parent / "old")
    new, replaced = tiny.folder / "new", tiny.folder / replaced
    tiny.after_compilation(f"[ -e {new} ] && mv {new} {replaced}", f"{source}*.cpp")
    options = {"extra_include_paths": [str(tiny.folder / "include")]}
    assert tiny.value(**options) == value
    shutil.rmtree(tiny.folder)
    old.rename(tiny.folder)
    new.unlink()
    assert tiny.value(**options) == 101, "an object was recorded for files it does not belong to"


def test_compiler_that_changes_at_each_compilation_is_named(tiny, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "2")
    wait = "until [ -e module.o.json ]; do sleep 0.01; done"
    # The file is busy while another call of the compiler starts.
    change = 'until echo "# changed" >> "$0"; do sleep 0.01; done'
    tiny.after_compilation(f'case "$*" in *other.cpp*) {wait};; esac; {change}')
    tiny.error(RuntimeError, match=r"tiny: \S+/bin/c\+\+ kept changing while")


@pytest.mark.slow
def test_source_that_changes_and_changes_back_is_compiled_again(tiny):
    """The compiler reads another version, but the source is unchanged when the build ends."""
    source, new = tiny.folder / "other.cpp", tiny.folder.parent / "new.cpp"
    new.write_text('extern "C" long other(void) { return 300; }\n')
    change = f"[ -e {new} ] && mv {source} {source}.old && mv {new} {source}"
    tiny.change_compiler(f'case "$*" in *other.cpp*) {change};; esac')
    tiny.after_compilation(f"[ -e {source}.old ] && mv {source}.old {source}", "other.cpp")
    assert tiny.value() == 101
    assert not new.exists()


@pytest.mark.parametrize("load", ["load", "load_inline"])
def test_traceback_of_a_compile_error_has_one_frame_of_the_loader(tiny, load):
    tiny.write("other.cpp", "int broken(;")
    sources = tiny.sources if load == "load" else ["int broken(;"]
    options = {} if load == "load" else {"no_implicit_headers": True}
    with pytest.raises(jit_loader.CompileError) as caught:
        getattr(jit_loader, load)("tiny", sources, **options)
    assert caught.traceback[-1].name == load
    assert len([entry for entry in caught.traceback if "_jit_loader" in str(entry.path)]) == 1
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_traceback_of_a_refused_argument_has_one_frame_of_the_loader(tiny):
    for call, last in [
        (lambda: jit_loader.load("tiny", "missing.cpp"), "load"),
        (lambda: jit_loader.load("tiny", tiny.sources, ["-D'"]), "load"),
        (lambda: jit_loader.load_inline("not a name", "int x;"), "load_inline"),
        (lambda: jit_loader.load_op("missing", project="/"), "load_op"),
        (lambda: jit_loader.load_op("missing", project="/", defines={"1X": 1}), "load_op"),
    ]:
        with pytest.raises((ValueError, FileNotFoundError, AssertionError)) as caught:
            call()
        assert [entry.name for entry in caught.traceback][1:] == ["<lambda>", last], caught.value


def test_traceback_of_an_unexpected_error_keeps_the_loaders_frames(tiny):
    """The message does not say where the error comes from."""
    with pytest.raises(TypeError) as caught:
        tiny.load(extra_cflags=[1])
    assert "_stripped" in [entry.name for entry in caught.traceback]


def test_object_of_a_compiler_that_ends_with_an_error_is_not_linked(tiny):
    """A wrapper may check a source after the compiler has written its object."""
    flag = tiny.folder.parent / "refuse"
    flag.touch()
    error = "other.cpp:1: error: refused"
    tiny.after_compilation(f"[ -e {flag} ] && {{ echo '{error}' >&2; exit 1; }}", "other.cpp")
    for _ in range(2):
        tiny.error(match=r"other\.cpp:1: error: refused")
    flag.unlink()
    assert tiny.value() == 101


def test_source_whose_compiler_does_not_list_its_headers_is_named(tiny):
    tiny.after_compilation("rm -f module.o.d", "module.cpp")
    assert "tiny: error: module.cpp: its compiler, or a wrapper of it, wrote" in str(tiny.error())
    tiny.restore_compiler()
    assert tiny.value() == 101


def test_undefined_function_is_an_error_while_another_thread_opens_a_library(
    tiny, in_process, monkeypatch
):
    """A library from the cache is opened lazily, which must not apply to a library to test."""
    source = tiny.write("hit.cpp", binding("hit"))
    in_process(lambda: bool(jit_loader.load("hit", source)))
    thread = threading.Thread(target=jit_loader.load, args=["hit", source])
    opening, tested = threading.Event(), threading.Event()
    module_from_spec = importlib.util.module_from_spec

    def slow(spec):
        if spec.origin.endswith("/tiny.so"):
            thread.start()
            opening.wait(1)  # it waits until this library is open
        else:
            opening.set()
            tested.wait(10)
        return module_from_spec(spec)

    monkeypatch.setattr(importlib.util, "module_from_spec", slow)
    tiny.write("other.cpp", 'long nowhere();\nextern "C" long other(void) { return nowhere(); }\n')
    try:
        tiny.error(ImportError, match=r"nowhere\(\)")
    finally:
        tested.set()
        thread.join()
