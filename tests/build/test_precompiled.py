"""The precompiled torch/extension.h is used if it fits, and never changes the result.

torch/extension.h itself takes 40 s to precompile, so a small header takes its place.
"""

import os
import pkgutil
import re
import shutil
import time
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest

import jit_loader
from _jit_loader.build import precompiled
from _jit_loader.build.precompiled import precompiled_headers, why_not_precompile
from _jit_loader.build.record import record_object
from _jit_loader.cache import PRECOMPILED, cache_folder, pruning
from _jit_loader.cache.store import read_manifest
from _jit_loader.commands import main
from tests.support.extension import PYTHON, write

INCLUDE = "#include <torch/extension.h>\n"
HEADER = f"""\
{PYTHON}#pragma once
#include "part.h"
#ifdef MENTIONED
#define SOURCE_VALUE MENTIONED
#else
#define SOURCE_VALUE PART
#endif
"""
MODULE = """\
static PyObject* value(PyObject*, PyObject*) { return PyLong_FromLong(SOURCE_VALUE); }
static PyMethodDef methods[] = {{"value", value, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "module", nullptr, -1, methods};
#define JOINED(a, b) a##b
#define INIT(name) JOINED(PyInit_, name)
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)(void) { return PyModule_Create(&definition); }
"""


class Sources:
    """Loads extensions whose torch/extension.h is a small header, and records the compilations."""

    def __init__(self, tiny, headers):
        self.tiny, self.headers = tiny, headers
        self.write_header("extension.h", HEADER)
        self.write_header("part.h", "#define PART 1\n")

    def write_header(self, name, text):
        write(self.headers / "torch" / name, text)

    def value(self, name, text=INCLUDE + MODULE, **options):
        return jit_loader.load(name, self.tiny.write(f"{name}.cpp", text), **options).value()

    def precompile(self, **options):
        """Makes the precompiled header with load_inline's use_pch."""
        options = {"no_implicit_headers": True, "use_pch": True, **options}
        text = options.pop("text", INCLUDE + MODULE)
        value = jit_loader.load_inline("first", text, **options).value()
        self.used_header()
        return value

    def used_header(self):
        """Returns, for each compilation since the last call, if it used the precompiled header."""
        calls = [call for call in self.tiny.calls() if " -c " in call and "/dev/null" not in call]
        return [f"/{PRECOMPILED}/" in call for call in calls]


@pytest.fixture
def sources(tiny, tmp_path, monkeypatch):
    monkeypatch.delenv("JIT_LOADER_PCH")
    monkeypatch.setattr(precompiled, "why_not_precompile", lambda: "a test")
    headers = tmp_path / "headers"
    monkeypatch.setenv("CXX", f"c++ -isystem {headers}")
    return Sources(tiny, headers)


REFUSED = ["-Winvalid-pch", "-Werror"]  # if g++ refuses the header, this is an error


def test_later_builds_of_any_name_use_the_precompiled_header(sources):
    assert sources.precompile(extra_cflags=REFUSED) == 1
    for name in ("second", "third"):
        assert sources.value(name, extra_cflags=[*REFUSED, f"-DFLAG_OF_{name}=1"]) == 1
        assert sources.used_header() == [True]


def test_key_is_the_same_with_and_without_the_precompiled_header(sources, monkeypatch):
    manifests = []
    for setting in ("", "0"):
        shutil.rmtree(os.path.join(cache_folder(), "second"), ignore_errors=True)
        monkeypatch.setenv("JIT_LOADER_PCH", setting)
        sources.precompile(text=f"{INCLUDE}{MODULE}// {setting}")
        sources.value("second")
        assert sources.used_header() == [setting == ""]
        (path,) = Path(cache_folder()).glob("second/*/*/manifest.json")
        manifest = read_manifest(path.parent)
        parts = ("request", "files", "tools", "programs", "absent")
        manifests.append({part: manifest[part] for part in parts})
    assert manifests[0] == manifests[1]


def test_precompiled_header_is_not_used_after_a_change_of_its_files(sources):
    sources.precompile()
    assert sources.value("second") == 1
    sources.used_header()
    sources.write_header("part.h", "#define PART 2\n")
    assert sources.value("second") == 2
    assert sources.used_header() == [False]
    assert sources.precompile() == 2
    assert sources.value("third") == 2
    assert sources.used_header() == [True]


SOURCE = INCLUDE + MODULE
CASES = {  # text of a source, flags, its value, whether the header is used
    "counter": (INCLUDE + MODULE.replace("SOURCE_VALUE", "__COUNTER__"), [], 0, True),
    "other folder": (SOURCE, ["-I{}/include"], 1, True),
    "nearer file": (SOURCE, ["-I{}/nearer"], 5, False),
    "macro of a flag": (SOURCE, ["-DMENTIONED=6"], 6, True),  # g++ itself refuses the header
    "macro before": ("#define MENTIONED 7\n" + SOURCE, [], 7, False),
    "header before": ('#include "own.h"\n' + SOURCE, [], 9, False),
    "continued comment": (f"// A \\\n{INCLUDE}{PYTHON}{MODULE}", ["-DSOURCE_VALUE=3"], 3, False),
    "optimisation": (SOURCE, ["-O2"], 1, False),
    "more includes": (SOURCE, ["-include cstddef"], 1, False),
}


@pytest.mark.parametrize("case", CASES)
def test_precompiled_header_is_used_only_if_the_result_is_the_same(sources, case):
    text, flags, value, is_used = CASES[case]
    write, folder = sources.tiny.write, sources.tiny.folder
    for name in ("own.h", "include/own.h"):
        write(name, "#define MENTIONED 9\n")
    write("nearer/torch/extension.h", HEADER.replace('#include "part.h"', "#define PART 5"))
    sources.precompile()
    assert sources.value("second", text, extra_cflags=[f.format(folder) for f in flags]) == value
    assert sources.used_header() == [is_used]


def test_file_that_a_flag_of_the_preprocessor_includes_comes_first(sources):
    text = "#ifdef PART\n#define MENTIONED 9\n#else\n#define MENTIONED 7\n#endif\n"
    flags = [f"-Wp,-include,{sources.tiny.write('own.h', text)}"]
    assert sources.precompile(extra_cflags=flags) == 7
    assert sources.value("second", extra_cflags=flags) == 7


INCLUDED = {  # flags, text of own.h, the value, whether the header is used
    "torch/extension.h": ("-include torch/extension.h", "", 1, True),
    "only includes": ("-include {}", f"// A\n#pragma once\n\n{INCLUDE}// and more\n", 1, True),
    "macro": ("-include {}", f"#define MENTIONED 4\n{INCLUDE}", 4, False),
    "continued comment": ("-include {} -DSOURCE_VALUE=3", f"// A \\\n{INCLUDE}", 3, False),
}


@pytest.mark.parametrize("case", INCLUDED)
def test_header_that_a_flag_includes_is_precompiled_if_it_only_includes_headers(sources, case):
    """A %%cpp cell includes torch/extension.h by a flag, and load_op a file of the project."""
    flags, text, value, is_used = INCLUDED[case]
    flags = [flags.format(sources.tiny.write("own.h", text))]
    assert sources.precompile(text=PYTHON + MODULE, extra_cflags=flags) == value
    assert sources.value("second", PYTHON + MODULE, extra_cflags=flags) == value
    assert sources.used_header() == [is_used]


def test_precompiled_header_is_not_used_if_the_file_of_a_flag_has_changed(sources):
    path = sources.tiny.write("first.h", INCLUDE)
    flags = [f"-include {path}"]
    sources.precompile(text=MODULE, extra_cflags=flags)
    sources.write_header("two.h", HEADER.replace("SOURCE_VALUE PART", "SOURCE_VALUE 2"))
    path.write_text("#include <torch/two.h>\n")
    assert sources.value("second", MODULE, extra_cflags=flags) == 2
    assert sources.used_header() == [False]


def test_bindings_use_the_precompiled_header_and_kernels_do_not(sources, python):
    write = sources.tiny.write
    path = write("op/bindings/shared/pytorch.h", INCLUDE)
    write("op/bindings/__init__.py", "")
    names = "answer", "other"
    for name in names:
        write(f"op/kernels/{name}_cpu.cpp", "int unused;\n")
        write(f"op/bindings/{name}.cpp", MODULE)
        write(f"op/bindings/{name}.py", f"import jit_loader\n\njit_loader.load_op({name!r})\n")
    python("-m", "jit_loader", "build", *names, "--pch", cwd=path.parents[2], check=True)
    assert sorted(sources.used_header()) == [False, False, True, True]


@pytest.mark.slow
def test_clang_does_not_use_the_precompiled_header(sources):
    sources.precompile(extra_cflags=["-fno-gnu-unique"])
    sources.tiny.change_compiler(
        'case "$*" in *--version*) echo clang version 18; exit;; esac', "any"
    )
    assert sources.value("second", extra_cflags=["-fno-gnu-unique"]) == 1
    assert sources.used_header() == [False]


def test_error_is_the_same_with_and_without_the_precompiled_header(sources, monkeypatch):
    sources.precompile()
    messages = []
    for setting in ("", "0"):
        monkeypatch.setenv("JIT_LOADER_PCH", setting)
        with pytest.raises(jit_loader.CompileError) as raised:
            sources.value("second", f"{INCLUDE}\nint broken = undeclared;\n{MODULE}")
        messages.append(str(raised.value).splitlines())
    ours = [line for line in messages[0] if cache_folder() not in line]
    assert ours == [line for line in messages[1] if cache_folder() not in line]
    assert ours[0].startswith("second: second.cpp:3: error: ")
    assert sources.used_header() == [True, False], "an error of the source is not compiled twice"


def _header_folder():
    (folder,) = precompiled_headers()
    return Path(folder)


@pytest.mark.parametrize("damage", ["truncated", "record"])
def test_build_after_damage_to_the_precompiled_header_is_right(sources, damage):
    sources.precompile()
    folder = _header_folder()
    if damage == "record":
        (folder / "header.json").write_text("damaged")
    else:
        os.truncate(folder / "header.h.gch", 100_000)
    assert sources.value("second") == 1
    assert sources.used_header()[-1] is False


def test_failed_compilation_is_repeated_without_the_precompiled_header(
    sources, tmp_path, monkeypatch
):
    """The second compilation starts when the thread that records the first one has ended."""

    def record_late(*arguments):
        time.sleep(0.5)
        return record_object(*arguments)

    crash = 'echo "internal compiler error: x" >&2; exit 4'
    sources.tiny.change_compiler(
        f'[ -e {tmp_path}/crash ] && case "$*" in *-include*) {crash};; esac'
    )
    sources.precompile()
    monkeypatch.setattr("_jit_loader.build.record.record_object", record_late)
    (tmp_path / "crash").touch()
    assert sources.value("second") == 1
    assert sources.used_header() == [True, False]


@pytest.fixture
def background(sources, monkeypatch):
    """Lets builds ask for headers; takes the place of call_detached."""
    monkeypatch.setattr(precompiled, "why_not_precompile", lambda: None)
    monkeypatch.setattr(precompiled, "call_detached", Mock())
    return precompiled.call_detached


@pytest.fixture
def make_missing(sources, background):
    """Returns a function that makes these headers, and returns how many were compiled."""

    def make():
        sources.tiny.calls()
        for function, arguments in [call.args for call in background.mock_calls]:
            pkgutil.resolve_name(function)(*arguments)
        background.reset_mock()
        return sum("c++-header" in call for call in sources.tiny.calls())

    return make


WRITE_PART = 'for word; do case "$word" in *.gch) echo part > "$word";; esac; done'


@pytest.mark.parametrize("failure", ["exit 1", pytest.param("sleep 60", marks=pytest.mark.slow)])
def test_header_that_cannot_be_precompiled_is_not_tried_after_every_build(
    sources, make_missing, failure, monkeypatch
):
    """A compiler that fails or is killed may have written a part of the header."""
    if failure == "sleep 60":
        monkeypatch.setenv("JIT_LOADER_COMPILE_TIMEOUT", "1")
    failure = f'case "$*" in *c++-header*) {WRITE_PART}; {failure};; esac'
    sources.tiny.change_compiler(failure, "any")
    sources.value("second")
    assert make_missing() == 1
    sources.value("third")
    assert make_missing() == 0
    monkeypatch.setattr(precompiled, "RETRY_SECONDS", 0)
    sources.value("fourth")
    assert make_missing() == 1


def test_least_recently_used_header_makes_room_for_a_new_one(sources, make_missing, monkeypatch):
    monkeypatch.setattr(precompiled, "MOST", 2)
    for number in range(2):
        assert sources.value("second", extra_cflags=[f"-fabi-version={11 + number}"]) == 1
        assert make_missing() == 1
    assert why_not_precompile(), "both were used in the last hour"
    before = sorted(precompiled_headers(), key=pruning.last_used)
    for age, header in enumerate(before):
        os.utime(header, (age + 1, age + 1))
    assert sources.value("second", extra_cflags=["-fabi-version=14"]) == 1
    assert make_missing() == 1
    assert [os.path.exists(header) for header in before] == [False, True]


@pytest.mark.parametrize("setting", ["JIT_LOADER_NO_COMPILE=1", "JIT_LOADER_PCH=0"])
def test_setting_that_forbids_precompilation_is_named(sources, monkeypatch, capsys, setting):
    monkeypatch.setenv(*setting.split("="))
    assert main(["build", "--pch"]) == 1
    assert setting.partition("=")[0] in capsys.readouterr().err
    assert why_not_precompile().startswith(setting.partition("=")[0])
    assert not precompiled_headers()


def test_reason_why_no_header_was_made_is_printed(sources, monkeypatch, capsys):
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    monkeypatch.setattr(precompiled, "TEXT", "#include <nowhere.h>\n")
    assert main(["build", "--pch"]) == 1
    monkeypatch.setattr(precompiled, "lock_if_free", lambda path: nullcontext())
    assert main(["build", "--pch"]) == 1
    said = capsys.readouterr().err
    assert re.search("not precompiled: .*nowhere.h: No such file", said, re.DOTALL)
    assert "another process is precompiling them" in said
    assert "torch/extension.h could not be precompiled" in said


def test_header_that_was_made_during_a_build_is_not_made_again(sources, background, tmp_path):
    folders = os.path.join(cache_folder(), PRECOMPILED, "*/")
    sources.tiny.change_compiler(f"[ -e {tmp_path}/header ] && mv {tmp_path}/header {folders}")
    sources.precompile()
    header = _header_folder().rename(tmp_path / "header")
    assert sources.value("second") == 1
    assert not header.exists()
    background.assert_not_called()


def test_header_that_two_builds_lack_is_made_once(sources, make_missing):
    sources.value("second")
    sources.value("third")
    assert make_missing() == 1


@pytest.mark.slow
def test_first_build_starts_the_precompilation(sources, monkeypatch, wait_for):
    monkeypatch.setattr(precompiled, "why_not_precompile", lambda: None)
    assert sources.value("second") == 1
    wait_for(precompiled_headers)
    assert sources.value("third") == 1
    assert sources.used_header()[-1] is True


@pytest.mark.slow
def test_load_many_precompiles_the_header_before_many_calls(sources, monkeypatch, capfd):
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    monkeypatch.setattr(precompiled, "why_not_precompile", lambda: None)
    paths = [sources.tiny.write(f"many{i}.cpp", INCLUDE + MODULE) for i in range(6)]
    calls = [{"name": path.stem, "sources": [str(path)]} for path in paths]
    outcomes = jit_loader.load_many(calls, jobs=2)
    assert [outcome.module.value() for outcome in outcomes] == [1] * 6
    assert sources.used_header() == [True] * 6
    first, second, *_ = capfd.readouterr().err.splitlines()
    assert first.startswith("load_many: 6 extensions: loading many0, many1, ")
    assert second == "PyTorch's headers: precompiling them for later builds"


def test_build_makes_list_counts_and_prune_removes_precompiled_headers(sources, capsys):
    assert main(["build", "--pch"]) == 0
    folders = list(precompiled_headers())  # two, if CUDA code can be compiled
    assert folders
    capsys.readouterr()
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert "precompiled headers: " in listed
    assert "0 builds" in listed
    assert sources.value("second") == 1
    assert sources.used_header()[-1] is True
    pruning.prune(max_size=1)
    assert not list(map(str, filter(os.path.exists, folders)))
