"""Each change that affects a build causes a rebuild, and no other change does."""

import os
import shlex
import shutil
import subprocess
import time

import pytest

import jit_loader
from _jit_loader import this_process
from _jit_loader.build.inputs.compilers import linked_files, nvcc_compiler
from _jit_loader.build.inputs.records import Clock, user_file_filter
from _jit_loader.key.roots import Roots
from tests.support.extension import MODULE, OTHER, program


def test_edit_recompiles_only_the_sources_that_read_the_file(tiny):
    first = tiny.load()
    tiny.compiled()
    tiny.write("value.h", "#define VALUE 2\n")
    assert tiny.value() == 102
    assert tiny.compiled() == ["module.cpp"]
    tiny.write("other.cpp", 'extern "C" long other(void) { return 200; }\n')
    assert tiny.value() == 202
    assert tiny.compiled() == ["other.cpp"]
    assert first.value() == 101, "the old module still works"
    assert tiny.value(extra_ldflags=["-Wl,-O1"]) == 202
    tiny.write("value.h", "#define VALUE 1\n")
    tiny.write("other.cpp", OTHER)
    assert tiny.load() is first
    assert tiny.compiled() == []


def test_edit_that_keeps_size_and_mtime_is_noticed(tiny):
    tiny.settle()
    header = tiny.folder / "value.h"
    status = header.stat()
    header.write_text("#define VALUE 7\n")
    os.utime(header, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert tiny.value() == 107


@pytest.mark.parametrize("shift", [0, -86400, 86400], ids=["now", "a day back", "a day ahead"])
def test_touched_file_is_a_hit(tiny, shift):
    tiny.load()
    tiny.compiled()
    then = time.time() + shift
    for path in tiny.folder.iterdir():
        os.utime(path, (then, then))
    tiny.load()
    assert tiny.compiled() == []


# {case: (files, the file that appears)}. A text that begins with "-> " is the target of a link.
# "name -> target" is a link that gets another target.
ONE, EIGHT = "#define VALUE 1\n", "#define VALUE 8\n"
LINKED = {"second/value.h": ONE, "first/value.h": "-> link.h"}
IN_A_FOLDER = {"value.h": '#include "v/x.h"\n', "second/v/x.h": ONE}
NUMBER = "#define VALUE NUMBER\n"
NEW_HEADERS = {
    "on the include path": (IN_A_FOLDER, "first/v/x.h"),
    "for another header": (
        {"second/value.h": "#include <number.h>\n" + NUMBER, "second/number.h": "#define NUMBER 1"},
        "first/number.h",
    ),
    "beside the including header": (
        {"second/value.h": '#include "number.h"\n' + NUMBER, "first/number.h": "#define NUMBER 1"},
        "second/number.h",
    ),
    "beside the source": ({"second/value.h": ONE}, "value.h"),
    "in a folder above": (
        {
            **{"second/value.h": '#include "deep/part.h"\n', "part.h": ONE},
            "second/deep/part.h": '#include "../part.h"\n',
        },
        "second/part.h",
    ),
    "in place of a folder": ({"second/value.h": ONE, "first/value.h/x.txt": ""}, "first/value.h"),
    "target of a link": ({**LINKED, "first/link.h": "-> ../third/x.h"}, "third/x.h"),
    "in place of a broken link": ({**LINKED, "first/link.h": "-> no/../link.h"}, "first/link.h"),
    "in the target of a link": ({**IN_A_FOLDER, "first/v": "-> ../third"}, "third/x.h"),
    "above the target of a link": (
        {"value.h": '#include "c/../v/x.h"', "c": "-> first", "v/x.h": ONE, "third/v/x.h": EIGHT},
        "c -> third/v",
    ),
    "behind a link to an earlier folder": (
        {"second": "-> first", "last/value.h": ONE, "third/value.h": EIGHT},
        "second -> third",
    ),
}


def place(tiny, name, text):
    """Writes a file or makes a link, in place of what has its name."""
    path = tiny.folder / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if text.startswith("-> "):
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(text[3:])
    else:
        tiny.write(name, text)


@pytest.mark.parametrize("case", NEW_HEADERS)
def test_new_header_is_noticed(tiny, case):
    files, new = NEW_HEADERS[case]
    (tiny.folder / "value.h").unlink()
    for name in ("first", "second"):
        (tiny.folder / name).mkdir()
    for name, text in files.items():
        place(tiny, name, text)
    options = {"extra_include_paths": [f"{tiny.folder}/{x}" for x in ("first", "second", "last")]}
    assert tiny.value(**options) == 101
    tiny.compiled()
    assert tiny.value(**options) == 101
    assert tiny.compiled() == []
    name, arrow, target = new.partition("-> ")
    place(tiny, name.strip(), arrow + target or EIGHT + "#define NUMBER 8\n")
    assert tiny.value(**options) == 108


@pytest.mark.parametrize("flags", ["-MP", "-MT other.o -MP", "-MF x.d", "-O1 -MMD -MFx.d"])
def test_edited_header_is_noticed_with_flags_for_depfiles(tiny, flags):
    assert tiny.value(extra_cflags=[flags]) == 101
    tiny.write("value.h", "#define VALUE 2\n")
    tiny.compiled()
    assert tiny.value(extra_cflags=[flags]) == 102
    assert tiny.compiled() == ["module.cpp"]


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("-include {}", "#define EXTRA {}\n"),
        ("@{}", "-DEXTRA={}\n"),
        pytest.param("@{}.outer", "-DEXTRA={}\n", marks=pytest.mark.slow),
    ],
)
def test_edit_of_a_file_that_a_flag_names_is_noticed(tiny, flag, text):
    file = tiny.write("named", text.format(1))
    tiny.write("named.outer", f"-DOTHER @{file}\n")
    tiny.write("value.h", "#define VALUE EXTRA\n")
    flags = flag.format(file).split()
    assert tiny.value(extra_cflags=flags) == 101
    tiny.write("named", text.format(2))
    assert tiny.value(extra_cflags=flags) == 102


def test_linked_files_are_read_from_the_trace_of_every_linker(tmp_path):
    for name in ("libone.a", "libtwo.so", "three.o"):
        (tmp_path / name).write_text("")
    trace = [
        f"({tmp_path}/libone.a)member.o",
        f"{tmp_path}/libone.a(member.o)",
        f"{tmp_path}/libtwo.so",
        f"{tmp_path}/three.o",
        "a warning (of the linker)",
    ]
    names = [os.path.basename(path) for path in linked_files(trace, "/elsewhere")]
    assert names == ["libone.a", "libtwo.so", "three.o"]


def make_library(folder, value):
    folder.mkdir(exist_ok=True)
    source = folder / "more.cpp"
    source.write_text(f'extern "C" long more(void) {{ return {value}; }}\n')
    subprocess.run(["g++", "-c", "-fPIC", source, "-o", folder / "more.o"], check=True)
    (folder / "libmore.a").unlink(missing_ok=True)
    subprocess.run(["ar", "rc", folder / "libmore.a", folder / "more.o"], check=True)


@pytest.mark.parametrize(
    "change", ["rewritten", pytest.param("redirected", marks=pytest.mark.slow)]
)
def test_changed_library_is_noticed(tiny, change):
    """The library is a link to a static one."""
    tiny.write(
        "other.cpp", 'extern "C" long more(void);\nextern "C" long other(void) { return more(); }\n'
    )
    folder = tiny.folder / "lib"
    folder.mkdir()
    make_library(tiny.folder / "one", 1)
    make_library(tiny.folder / "two", 6)
    link = folder / "libmore.a"
    link.symlink_to("../one/libmore.a")
    flags = [f"-L{folder}", "-lmore"]
    assert tiny.value(extra_ldflags=flags) == 2
    if change == "rewritten":
        make_library(tiny.folder / "one", 6)
    else:
        link.unlink()
        link.symlink_to("../two/libmore.a")
    assert tiny.value(extra_ldflags=flags) == 7


@pytest.mark.parametrize("text", ["#define VALUE 2\n", pytest.param(None, marks=pytest.mark.slow)])
def test_header_that_changes_between_link_and_publication_is_noticed(tiny, monkeypatch, text):
    real, header = this_process._open, tiny.folder / "value.h"

    def slow(*arguments):
        header.write_text(text) if text else header.unlink()
        time.sleep(0.1)  # until the stats of the edit and of the library are settled
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(this_process, "_open", slow)
        assert tiny.value() == 101
    if text:
        assert tiny.value() == 102
    else:
        tiny.error(match=r"value\.h: No such file")


def test_arguments_in_cxx_are_used(tiny, monkeypatch):
    tiny.write("value.h", "")
    monkeypatch.setenv("CXX", "c++ -DVALUE=5")
    assert tiny.value() == 105
    monkeypatch.setenv("CXX", "env c++ -DVALUE=6")
    assert tiny.value() == 106


def test_root_is_not_replaced_in_a_longer_path(tmp_path):
    """In a container, another path can end with the complete path of the project."""
    roots = Roots(str(tmp_path / "foo"))
    for flags in ("-I{}/one -I{}/two", "{}/one.o {}/two.o", "-include {}/x.h", "-I{}"):
        given = flags.replace("{}", f"{tmp_path}/foo")
        assert roots.relative_text(given) == flags.replace("{}", "<project>")
    for name in ("foo-common", "foobar", "foo.old", "foo_2"):
        assert roots.relative_text(f"-I{tmp_path}/{name}") == f"-I{tmp_path}/{name}"
    assert roots.relative_text(f"-I/data{tmp_path}/foo/include") == f"-I/data{tmp_path}/foo/include"


@pytest.mark.parametrize(
    ("path", "is_users"),
    [
        ("/usr/local/cuda-13.0/include/cuda.h", False),  # a hit must not need CUDA
        ("/usr/include/stdio.h", False),
        ("/usr/src/app/include/value.h", True),
        ("/usr/local/src/app/include/value.h", True),
        ("/opt/app/include/value.h", True),
        ("/home/me/libs/gcc-13/include/c++/13/vector", False),
        ("/home/me/libs/mine/value.h", True),
        ("/home/me/include/value.h", True),
    ],
)
def test_headers_of_the_user_and_of_the_system_are_distinguished(path, is_users, tmp_path):
    tools = ["/home/me/libs/gcc-13/bin/g++", "/home/me/libs/gcc-13/libexec/gcc/x86_64/13/cc1plus"]
    assert user_file_filter(Roots(str(tmp_path)), tools)(path) == is_users


def test_edit_of_an_assembly_source_is_noticed(tiny):
    """There is no depfile: only the assembler reads the file."""
    assembly = tiny.write(
        "data.s",
        ".data\n.globl data\n.hidden data\ndata: .byte 1\n"
        '.section .note.GNU-stack, "", %progbits\n',
    )
    tiny.write(
        "other.cpp",
        'extern "C" const char data[] __attribute__((visibility("hidden")));\n'
        'extern "C" long other(void) { return data[0]; }\n',
    )

    def value():
        return jit_loader.load("tiny", [*tiny.sources, str(assembly)]).value()

    assert value() == 2
    tiny.compiled()
    assert value() == 2
    assembly.write_text(assembly.read_text().replace("byte 1", "byte 2"))
    assert value() == 3
    assert tiny.compiled() == ["data.s"]


def test_moved_project_is_a_hit_in_another_working_directory(tiny, tmp_path, monkeypatch):
    tiny.load()
    tiny.compiled()
    moved = tmp_path / "moved" / "deeper"
    moved.parent.mkdir()
    shutil.move(tiny.folder, moved)
    tiny.folder = moved
    monkeypatch.chdir(tmp_path)
    assert tiny.value() == 101
    assert tiny.compiled() == []


@pytest.mark.slow
def test_edit_in_a_copy_of_the_project_is_not_hidden_by_the_original(tiny, tmp_path):
    tiny.write("value.h", '#include "../common.h"\n')
    tiny.write("../common.h", ONE)  # outside of the project
    tiny.settle()
    tiny.folder = shutil.copytree(tiny.folder, tmp_path / "copy" / "project")
    tiny.write("../common.h", EIGHT)
    assert tiny.value() == 108
    tiny.write("value.h", "#define VALUE 6\n")
    assert tiny.value() == 106


@pytest.mark.slow
def test_copy_of_a_project_can_name_a_file_of_the_original(tiny, tmp_path):
    tiny.write("module.cpp", MODULE.replace("value.h", str(tiny.folder / "value.h")))
    tiny.settle()
    original = tiny.folder
    tiny.folder = shutil.copytree(original, tmp_path / "copy")
    assert tiny.value() == 101
    (original / "value.h").write_text("#define VALUE 6\n")
    assert tiny.value() == 106
    tiny.write("value.h", "#define VALUE 7\n")
    assert tiny.value() == 106


def test_edit_of_an_incbin_file_that_a_flag_names_is_noticed(tiny):
    data = tiny.write("data.bin", "\x01")
    tiny.write(
        "other.cpp",
        f'__asm__(".global data\\ndata: .incbin \\"{data}\\"\\n");\n'
        'extern "C" const char data[] __attribute__((visibility("hidden")));\n'
        'extern "C" long other(void) { return data[0]; }\n',
    )
    flags = [f"-DDATA={data}"]
    assert tiny.value(extra_cflags=flags) == 2
    data.write_text("\x05")
    assert tiny.value(extra_cflags=flags) == 6


def test_statics_are_not_shared_between_the_old_and_the_new_module(tiny):
    """g++ marks such statics as unique in the process, across all libraries."""
    statics = """
template <class T> struct Counter { static T count; };
template <class T> T Counter<T>::count = 0;
inline long next_inline() { static long count = 0; return ++count; }
"""
    count = "(++Counter<long>::count + 10 * next_inline())"
    tiny.write("module.cpp", statics + MODULE.replace("VALUE + other()", f"100 * VALUE + {count}"))
    old = tiny.load()
    assert [old.value(), old.value()] == [111, 122]
    tiny.write("value.h", "#define VALUE 2\n")
    assert tiny.value() == 211
    assert old.value() == 133


def test_header_named_only_in_has_include_is_noticed(tiny):
    tiny.write(
        "value.h",
        '#if __has_include \\\n("optional.h")\n#define VALUE 20\n#else\n#define VALUE 1\n#endif\n',
    )
    for _ in range(2):
        assert tiny.value() == 101
        optional = tiny.write("optional.h", "")
        assert tiny.value() == 120
        optional.unlink()


@pytest.mark.slow
def test_paths_inside_a_build_are_those_of_its_own_checkout(tiny, tmp_path):
    """A second checkout must not get the first one's paths."""
    tiny.write("value.h", "#define VALUE (sizeof(HERE) - 1)\n")
    copy = shutil.copytree(tiny.folder, tmp_path / "another copy")
    for folder in (tiny.folder, copy):
        tiny.folder = folder
        rpath = f"-Wl,-rpath,'{folder}/lib'"
        module = tiny.load(extra_cflags=[f"'-DHERE=\"{folder}\"'"], extra_ldflags=[rpath])
        assert module.value() == 100 + len(str(folder))
        with open(module.__file__, "rb") as file:
            assert os.fsencode(f"{folder}/lib") in file.read()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize(
    "flags",
    [
        *("-I{0} -I {1}", "-I{0},{1}", "-x cu -MP -dc -I{0} -I{1}"),
        "-isystem {0} --system-include {1}",
        "-Xcompiler -I{0} --compiler-options=-fPIC,-I,{1}",
    ],
)
@pytest.mark.parametrize("where", ["command", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"])
def test_every_spelling_of_nvccs_include_folders_is_found(tmp_path, monkeypatch, flags, where):
    folders = [str(tmp_path / name) for name in ("one", "two")]
    flags = flags.format(*folders)
    words = shlex.split(flags)
    if where != "command":
        monkeypatch.setenv(where, flags)
        words = []
    compiler = nvcc_compiler(["nvcc", "-MD", "-MF", "x.d", *words, "-c", "x.cu", "-o", "x.o"])
    assert [folder for folder in compiler.search_folders if folder in folders] == folders
    assert any(tool.endswith("/cicc") for tool in compiler.tools)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_host_compiler_in_a_named_folder_is_a_tool(tmp_path):
    for name in ("gcc", "g++"):
        program(tmp_path / name, f'#!/bin/sh\nexec {shutil.which(name)} "$@"\n')
    compiler = nvcc_compiler(["nvcc", "-ccbin", str(tmp_path), "-c", "x.cu", "-o", "x.o"])
    assert {str(tmp_path / "gcc"), shutil.which("gcc")} <= set(compiler.tools)


def test_change_after_a_compilation_is_noticed_if_the_clock_of_the_file_is_slow(tiny, monkeypatch):
    """The files and the cache may be on servers whose clocks differ: contents count too."""
    monkeypatch.setattr(Clock, "has_seen_change", lambda *_: False)
    new = tiny.folder / "new"
    new.write_text(OTHER.replace("100", "200"))
    tiny.after_compilation(f"[ -e {new} ] && mv {new} {tiny.folder}/other.cpp", "other.cpp")
    value = tiny.value()
    assert not new.exists()
    assert value == 201


def test_native_code_of_another_processor_is_compiled_again(tiny, monkeypatch):
    for name in ("one", "another"):
        monkeypatch.setattr("_jit_loader.key.request.processor", lambda name=name: [name])
        monkeypatch.setattr("_jit_loader.key.boot", lambda name=name: name)
        tiny.load(extra_cflags=["-march=native"])
        assert tiny.compiled() == ["module.cpp", "other.cpp"]
