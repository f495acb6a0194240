"""Errors say what is wrong and what to do; the next load after the correction succeeds."""

import errno
import os
import pickle
import shutil
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import jit_loader


def test_syntax_error_names_file_line_and_source(tiny):
    tiny.write("other.cpp", 'extern "C" long other(void) {\n  return 1 +;\n}\n')
    with pytest.raises(jit_loader.CompileError) as error:
        tiny.load()
    lines = str(error.value).splitlines()
    assert lines[0].startswith("tiny: other.cpp:2: error: ")
    assert lines[1] == "  2 |   return 1 +;"
    assert isinstance(error.value, RuntimeError), "as torch.utils.cpp_extension.load raises"


def test_error_says_how_many_more_errors_there_are_and_where_the_log_is(tiny):
    tiny.write("other.cpp", "int a = ;\nint b = ;\nint c = ;\n")
    with pytest.raises(jit_loader.CompileError) as error:
        tiny.load()
    message = str(error.value)
    assert "and 2 more errors" in message
    log = next(line for line in message.splitlines() if "full compiler output" in line)
    assert "int c" in Path(log.split(": ")[1]).read_text()


def test_error_lists_further_errors_and_ends_like_pytorchs(tiny):
    """Programs look for PyTorch's sentence, and read the errors or the compilers' output."""
    tiny.write("other.cpp", "".join(f"int a{i} = ;\n" for i in range(30)))
    with pytest.raises(jit_loader.CompileError) as error:
        tiny.load(extra_cflags=["-fmax-errors=0"])
    lines = str(error.value).splitlines()
    assert "  and 29 more errors" in lines[:10]
    further = [line for line in lines if line.startswith("other.cpp:")]
    assert further == lines[-21:-1]
    assert further[0].startswith("other.cpp:2: error: ")
    assert lines[-1] == "Error building extension 'tiny'"
    assert "int a29 = ;" in error.value.output
    assert (error.value.file, error.value.line) == (str(tiny.folder / "other.cpp"), 1)
    assert pickle.loads(pickle.dumps(error.value)).output == error.value.output


def test_command_in_the_error_repeats_the_build(tiny):
    tiny.write("other.cpp", "int a = ;\n")
    with pytest.raises(jit_loader.CompileError) as error:
        tiny.load()
    line = next(line for line in str(error.value).splitlines() if "run it again" in line)
    command = line.split(": ", 1)[1]
    again = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert again.returncode != 0
    assert "other.cpp:1:" in again.stdout


def test_fixed_source_is_built_and_the_good_objects_are_kept(tiny):
    good = (tiny.folder / "other.cpp").read_text()
    tiny.write("other.cpp", "int a = ;\n")
    with pytest.raises(jit_loader.CompileError):
        tiny.load()
    tiny.compiled()
    tiny.write("other.cpp", good)
    assert tiny.value() == 101
    assert tiny.compiled() == ["other.cpp"], "module.cpp was compiled before the error"


def test_error_repeats_until_it_is_fixed(tiny):
    tiny.write("other.cpp", "int a = ;\n")
    for _ in range(2):
        with pytest.raises(jit_loader.CompileError, match=r"other\.cpp:1"):
            tiny.load()


def test_last_good_build_survives_a_failure(tiny):
    first = tiny.load()
    good = (tiny.folder / "other.cpp").read_text()
    tiny.write("other.cpp", "int a = ;\n")
    with pytest.raises(jit_loader.CompileError):
        tiny.load()
    assert first.value() == 101
    tiny.write("other.cpp", good)
    tiny.compiled()
    assert tiny.load() is first
    assert tiny.compiled() == []


def test_missing_header_is_named(tiny):
    (tiny.folder / "value.h").unlink()
    with pytest.raises(jit_loader.CompileError, match=r"module\.cpp:2: error: value\.h: No such"):
        tiny.load()


def test_undefined_symbol_is_an_error_and_nothing_is_published(tiny, tmp_path):
    tiny.write("other.cpp", "long another_name(void) { return 1; }\n")
    with pytest.raises(jit_loader.CompileError, match="undefined symbol: other"):
        tiny.load()
    assert not list((tmp_path / "cache").rglob("manifest.json"))


def test_library_that_cannot_be_opened_is_a_compile_error(tiny, tmp_path):
    """The error of a library without a module names its source, which is compiled only once."""
    tiny.write("other.cpp", 'int nope(int);\nextern "C" { int (*pointer)(int) = nope; }\n')
    source = tiny.sources[1]
    for compiled in (["other.cpp"], []):
        with pytest.raises(jit_loader.CompileError) as error:
            jit_loader.load("library", source, is_python_module=False)
        assert isinstance(error.value, OSError), "as torch.utils.cpp_extension.load raises"
        lines = str(error.value).splitlines()
        assert lines[0] == "library: other.cpp:1: error: undefined symbol: nope(int)"
        assert "declared, but not defined" in lines[2]
        assert Path(lines[3].split(": ")[1]).exists()
        assert tiny.compiled() == compiled
    assert not list((tmp_path / "cache").rglob("manifest.json"))


@pytest.mark.parametrize("kind", ["ValueError", "FileNotFoundError"])
def test_exception_of_a_modules_initialisation_is_raised_unchanged(tiny, kind):
    text = (tiny.folder / "module.cpp").read_text()
    raising = f'PyErr_SetString(PyExc_{kind}, "not here"); return nullptr;'
    tiny.write("module.cpp", text.replace("return PyModule_Create(&definition);", raising))
    for compiled in (["module.cpp", "other.cpp"], []):
        with pytest.raises((ValueError, FileNotFoundError), match=r"^not here$") as error:
            tiny.load()
        assert type(error.value).__name__ == kind
        assert tiny.compiled() == compiled
    tiny.write("module.cpp", text)
    assert tiny.value() == 101
    assert tiny.compiled() == ["module.cpp"]


def test_undefined_reference_is_named(tiny):
    tiny.write("other.cpp", "long another_name(void) { return 1; }\n")
    with pytest.raises(jit_loader.CompileError, match=r"^tiny: .*undefined reference to "):
        tiny.load(extra_ldflags=["-Wl,--no-undefined"])


def test_missing_library_is_named(tiny):
    with pytest.raises(jit_loader.CompileError, match=r"libnosuch is not in the linker's"):
        tiny.load(extra_ldflags=["-lnosuch"])


def test_failure_that_names_no_source_shows_the_compilers_error(tiny):
    with pytest.raises(jit_loader.CompileError, match=r"^tiny: .* cannot read spec file .*/x"):
        tiny.load(extra_cflags=["-specs=/x"])


@pytest.mark.parametrize("step", ["compilation", "link"])
def test_build_succeeds_if_the_cache_is_deleted_meanwhile(tiny, tmp_path, step):
    deleted = tmp_path / "deleted"
    delete = f"rm -rf {tmp_path}/cache; touch {deleted}"
    tiny.change_compiler(f"[ -e {deleted} ] || {{ {delete}; }}", step)
    assert tiny.value() == 101
    assert deleted.exists()


def test_compiler_message_need_not_be_utf8(tiny):
    (tiny.folder / "other.cpp").write_bytes(b'#error "\xff\xfe caf\xe9"\n')
    with pytest.raises(jit_loader.CompileError, match=r"other\.cpp:1: error: "):
        tiny.load()


def test_missing_compiler_is_named(tiny, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", str(tmp_path / "no-such-compiler"))
    with pytest.raises(RuntimeError, match=r"no-such-compiler.*Install g\+\+"):
        tiny.load()
    monkeypatch.delenv("CXX")
    assert tiny.value() == 101


def test_missing_cuda_is_explained(tiny, monkeypatch):
    monkeypatch.setattr("_jit_loader.key.toolchain.why_no_cuda", lambda: "nvcc was not found")
    with pytest.raises(RuntimeError, match=r"has CUDA code to compile: nvcc was not") as error:
        tiny.load(with_cuda=True)
    assert isinstance(error.value, OSError), "as torch.utils.cpp_extension.load raises"


@pytest.mark.parametrize(("variable", "with_cuda"), [("CXX", False), ("CC", True)])
def test_open_quote_in_the_compilers_variable_is_reported(tiny, monkeypatch, variable, with_cuda):
    monkeypatch.setenv(variable, 'g++ "')
    message = rf'variable {variable}: No closing quotation: g\+\+ "'
    with pytest.raises(ValueError, match=message):
        tiny.load(with_cuda=with_cuda)


def test_missing_ninja_is_explained(tiny, monkeypatch):
    monkeypatch.setattr("_jit_loader.build.checks.ninja_path", lambda: None)
    with pytest.raises(RuntimeError, match="pip install ninja"):
        tiny.load()


def test_ninja_is_found_if_the_environment_is_not_activated(tiny, monkeypatch):
    """With venv/bin/python, the environment's programs are not on PATH; ninja is one of them."""
    pytest.importorskip("ninja")
    folders = os.environ["PATH"].split(os.pathsep)
    kept = [folder for folder in folders if not os.path.exists(os.path.join(folder, "ninja"))]
    links = tiny.folder.parent / "tools"
    links.mkdir()
    for tool in ("g++", "as", "ld", "sh"):
        (links / tool).symlink_to(shutil.which(tool))
    kept.append(str(links))
    monkeypatch.setenv("PATH", os.pathsep.join(kept))
    assert tiny.value() == 101


def test_missing_source_is_named(tiny):
    (tiny.folder / "other.cpp").unlink()
    with pytest.raises(FileNotFoundError, match="there is no such source file") as error:
        tiny.load()
    assert (error.value.errno, error.value.filename) == (errno.ENOENT, tiny.sources[1])


@pytest.mark.slow
def test_load_after_the_cache_was_deleted_builds_again(tiny, tmp_path):
    tiny.load()
    shutil.rmtree(tmp_path / "cache")
    assert tiny.value() == 101
    assert jit_loader.loaded("tiny").compiled


def test_cache_in_the_place_of_a_file_is_an_error(tiny, monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("JIT_LOADER_CACHE", str(file / "cache"))
    with pytest.raises(OSError, match="JIT_LOADER_CACHE"):
        tiny.load()


def test_source_that_changes_during_compilation_is_compiled_again(tiny, monkeypatch):
    """A new version replaces the source that the compiler has just read."""
    compiler = tiny.calls_path.parent / "c++"
    new = tiny.folder.parent / "new.cpp"
    new.write_text('extern "C" long other(void) { return 300; }\n')
    compiler.write_text(
        compiler.read_text().replace("exec ", "")
        + f'case "$*" in *" -c "*other.cpp*) [ -e {new} ] && mv {new} {tiny.folder}/other.cpp;;'
        + " esac; exit 0\n"
    )
    assert tiny.value() == 301
    tiny.write("other.cpp", 'extern "C" long other(void) { return 100; }\n')
    assert tiny.value() == 101, "an object was recorded for a source that it does not belong to"


@pytest.mark.slow
def test_source_that_changes_and_changes_back_is_compiled_again(tiny):
    """The compiler reads another version, but the source is unchanged when the build ends."""
    source, new = tiny.folder / "other.cpp", tiny.folder.parent / "new.cpp"
    new.write_text('extern "C" long other(void) { return 300; }\n')
    compiler = tiny.calls_path.parent / "c++"
    run = compiler.read_text().replace("exec ", "")
    swapped = (
        f"mv {source} {source}.old; mv {new} {source}\n{run}mv {source}.old {source}; exit 0\n"
    )
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *" -c "*other.cpp*) if [ -e {new} ]; then\n{swapped}fi;; esac\n'
        + run
    )
    assert tiny.value() == 101


@pytest.mark.slow
def test_include_folder_replaced_during_compilation_is_noticed(tiny):
    """A rename of a folder changes no timestamp of its files."""
    (tiny.folder / "value.h").unlink()
    tiny.write("include/deep/value.h", "#define VALUE 1\n")
    new = tiny.write("new/deep/value.h", "#define VALUE 2\n").parent.parent
    tiny.write(
        "module.cpp", (tiny.folder / "module.cpp").read_text().replace("value.h", "deep/value.h")
    )
    compiler = tiny.calls_path.parent / "c++"
    include = tiny.folder / "include"
    compiler.write_text(
        compiler.read_text().replace("exec ", "")
        + f'case "$*" in *" -c "*module.cpp*) [ -e {new} ] && mv {include} {include}.old '
        + f"&& mv {new} {include};; esac; exit 0\n"
    )
    assert tiny.value(extra_include_paths=[str(include)]) == 102


def test_entry_that_is_made_in_a_folder_above_does_not_repeat_the_build(tiny, monkeypatch):
    """The kernel sets the folder's ctime, then its mtime; here the lstat falls in between."""
    folder, lstat, torn = str(tiny.folder.parent), os.lstat, []

    def lstat_between_both_times(path, **options):
        status = lstat(path, **options)
        if str(path) != folder or torn:
            return status
        torn.append(time.time_ns())
        return SimpleNamespace(
            st_mode=status.st_mode, st_ctime_ns=torn[0], st_mtime_ns=status.st_mtime_ns
        )

    monkeypatch.setattr(os, "lstat", lstat_between_both_times)
    tiny.load()
    assert torn
    assert tiny.compiled() == ["module.cpp", "other.cpp"]


def test_header_that_appears_during_compilation_and_shadows_another_is_used(tiny):
    """The header exists when the build ends, but not when the compiler looks for it."""
    (tiny.folder / "value.h").unlink()
    tiny.write("include/value.h", "#define VALUE 1\n")
    new = tiny.folder.parent / "new.h"
    new.write_text("#define VALUE 2\n")
    compiler = tiny.calls_path.parent / "c++"
    compiler.write_text(
        compiler.read_text().replace("exec ", "")
        + f'case "$*" in *" -c "*module.cpp*) [ -e {new} ] && mv {new} {tiny.folder}/value.h;;'
        + " esac; exit 0\n"
    )
    assert tiny.value(extra_include_paths=[str(tiny.folder / "include")]) == 102


@pytest.mark.slow
def test_header_that_changes_between_two_objects_is_noticed(tiny):
    """One object has the old version and one has the new, so that the build matches neither."""
    for name in ("module.cpp", "other.cpp"):
        text = (tiny.folder / name).read_text()
        tiny.write(name, '#include "shared.h"\n' + text.replace("return 100", "return SHARED"))
    tiny.write(
        "module.cpp", (tiny.folder / "module.cpp").read_text().replace("VALUE +", "SHARED +")
    )
    tiny.write("shared.h", "#define SHARED 1\n")
    assert tiny.value() == 2
    new = tiny.folder.parent / "new.h"
    new.write_text("#define SHARED 2\n")
    compiler = tiny.calls_path.parent / "c++"
    compiler.write_text(
        compiler.read_text().replace("exec ", "")
        + f'case "$*" in *" -c "*) [ -e {new} ] && mv {new} {tiny.folder}/shared.h;; esac; exit 0\n'
    )
    assert tiny.value() == 4


def test_source_that_never_stops_changing_is_an_error(tiny):
    compiler = tiny.calls_path.parent / "c++"
    compiler.write_text(
        compiler.read_text().replace("exec ", "")
        + f'case "$*" in *" -c "*other.cpp*) echo "//" >> {tiny.folder}/other.cpp;; esac; exit 0\n'
    )
    with pytest.raises(RuntimeError, match=r"other\.cpp kept changing"):
        tiny.load()


def test_oserror_of_a_modules_initialisation_does_not_blame_the_cache(tiny):
    text = (tiny.folder / "module.cpp").read_text()
    raising = 'PyErr_SetObject(PyExc_OSError, Py_BuildValue("(is)", 13, "not for you"))'
    tiny.write(
        "module.cpp",
        text.replace("return PyModule_Create(&definition)", f"{raising}; return nullptr"),
    )
    with pytest.raises(PermissionError) as error:
        tiny.load()
    assert error.value.strerror == "not for you"


@pytest.mark.parametrize("load", ["load", "load_inline"])
def test_traceback_of_a_compile_error_has_one_frame_of_the_loader(tiny, load):
    tiny.write("other.cpp", "int broken(;")
    sources = tiny.sources if load == "load" else ["int broken(;"]
    options = {} if load == "load" else {"no_implicit_headers": True}
    with pytest.raises(jit_loader.CompileError) as caught:
        getattr(jit_loader, load)("tiny", sources, **options)
    frames = [entry.name for entry in caught.traceback]
    assert frames[-1] == load
    assert len([entry for entry in caught.traceback if "_jit_loader" in str(entry.path)]) == 1
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_traceback_of_a_refused_argument_has_one_frame_of_the_loader(tiny):
    for call, last in [
        (lambda: jit_loader.load("tiny", "missing.cpp"), "load"),
        (lambda: jit_loader.load("not a name", "missing.cpp"), "load"),
        (lambda: jit_loader.load("tiny", []), "load"),
        (lambda: jit_loader.load("tiny", tiny.sources, ["-D'"]), "load"),
        (lambda: jit_loader.load_inline("not a name", "int x;"), "load_inline"),
        (lambda: jit_loader.load_inline("tiny", "int x;", functions=1), "load_inline"),
        (lambda: jit_loader.load_op("missing", project="/"), "load_op"),
        (lambda: jit_loader.load_op("missing", project="/", defines={"1X": 1}), "load_op"),
    ]:
        with pytest.raises((ValueError, FileNotFoundError, AssertionError)) as caught:
            call()
        frames = [entry.name for entry in caught.traceback]
        assert frames[1:] == ["<lambda>", last], caught.value


def test_traceback_of_an_unexpected_error_keeps_the_loaders_frames(tiny):
    """The message does not say where the error comes from."""
    with pytest.raises(TypeError) as caught:
        tiny.load(extra_cflags=[1])
    assert "_stripped" in [entry.name for entry in caught.traceback]


BLOCKS = """\
#include <unistd.h>
#include <Python.h>
static PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "blocks", nullptr, -1, nullptr}};
PyMODINIT_FUNC PyInit_blocks(void) {{
  Py_BEGIN_ALLOW_THREADS
  for (int i = 0; i < 1000 && access("{begun}", F_OK) == 0 && access("{ended}", F_OK); i++)
    usleep(10000);
  Py_END_ALLOW_THREADS
  return PyModule_Create(&definition);
}}
"""


def test_object_of_a_compiler_that_ends_with_an_error_is_not_linked(tiny):
    """A wrapper may check a source after the compiler has written its object."""
    flag = tiny.folder.parent / "refuse"
    flag.touch()
    compiler = tiny.calls_path.parent / "c++"
    compiler.write_text(
        compiler.read_text().replace("exec ", "") + f"\ncode=$?\n"
        f'case " $* " in *" -c "*other.cpp*) [ -e {flag} ] && '
        "{ echo 'other.cpp:1: error: refused' >&2; exit 1; };; esac\nexit $code\n"
    )
    for _ in range(2):
        with pytest.raises(jit_loader.CompileError, match=r"other\.cpp:1: error: refused"):
            tiny.load()
    flag.unlink()
    assert tiny.value() == 101


def test_undefined_function_is_an_error_while_another_thread_opens_a_library(
    tiny, cache, tmp_path, in_process, wait_for
):
    """A library from the cache is opened lazily, which must not apply to a library to test."""
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    source = tiny.write("blocks.cpp", BLOCKS.format(begun=begun, ended=ended))
    in_process(lambda: bool(jit_loader.load("blocks", source)))
    begun.touch()
    tiny.write("other.cpp", 'long nowhere();\nextern "C" long other(void) { return nowhere(); }\n')
    errors = []

    def build():
        try:
            tiny.load()
        except ImportError as error:
            errors.append(error)

    blocking = threading.Thread(target=jit_loader.load, args=["blocks", source])
    building = threading.Thread(target=build)
    blocking.start()
    wait_for(lambda: "/blocks.so" in Path("/proc/self/maps").read_text())
    building.start()
    wait_for(lambda: list(cache.rglob("tiny.so")))
    building.join(0.5)  # a library that was opened lazily is published in this time
    ended.touch()
    blocking.join()
    building.join()
    assert "nowhere()" in str(errors[0])
