"""Each change that affects a build causes a rebuild, and no other change does."""

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import jit_loader
from _jit_loader import loaded
from _jit_loader.build.inputs import negative_dependencies
from _jit_loader.build.inputs.depfiles import linked_files
from _jit_loader.build.inputs.queries import files_in_flags, nvcc_compiler
from _jit_loader.build.inputs.records import ownership
from _jit_loader.cache import cache_folder, memo
from _jit_loader.key import digests
from _jit_loader.key.roots import Roots
from tests.support.extension import make_memos_use_os_stat
from tests.support.mounts import mount


def test_first_load_compiles_and_the_next_does_not(tiny):
    assert tiny.value() == 101
    assert tiny.compiled() == ["module.cpp", "other.cpp"]
    assert jit_loader.loaded("tiny").compiled
    assert tiny.value() == 101
    assert tiny.compiled() == []
    assert not jit_loader.loaded("tiny").compiled


def test_edited_source_recompiles_only_that_source(tiny):
    old = tiny.load()
    tiny.compiled()
    tiny.write("other.cpp", 'extern "C" long other(void) { return 200; }\n')
    assert tiny.value() == 201
    assert tiny.compiled() == ["other.cpp"]
    assert old.value() == 101, "the old module still works"


def test_edited_header_recompiles_only_the_sources_that_include_it(tiny):
    tiny.load()
    tiny.compiled()
    tiny.write("value.h", "#define VALUE 2\n")
    assert tiny.value() == 102
    assert tiny.compiled() == ["module.cpp"]


def test_undone_edit_is_a_hit(tiny):
    first = tiny.load()
    tiny.write("value.h", "#define VALUE 2\n")
    assert tiny.value() == 102
    tiny.compiled()
    tiny.write("value.h", "#define VALUE 1\n")
    assert tiny.load() is first
    assert tiny.compiled() == []


def test_edit_that_keeps_size_and_mtime_is_noticed(tiny):
    tiny.settle()
    header = tiny.folder / "value.h"
    status = header.stat()
    header.write_text("#define VALUE 7\n")
    os.utime(header, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (header.stat().st_size, header.stat().st_mtime_ns) == (
        status.st_size,
        status.st_mtime_ns,
    )
    assert tiny.value() == 107


def test_edit_within_one_tick_of_the_clock_is_noticed(tiny, monkeypatch):
    """A recently changed file is read again, because its stat does not identify its content."""
    # Longer than a slow machine may take for the rest of the test; the default is 2 s.
    monkeypatch.setattr(memo, "SETTLED_NS", 600_000_000_000)
    frozen = {}
    real = os.stat

    def coarse(path, **options):
        """Simulates a slow clock: no edit changes a stat."""
        now = real(path, **options)
        return frozen.setdefault(path, now) if str(path).endswith("value.h") else now

    monkeypatch.setattr(os, "stat", coarse)
    make_memos_use_os_stat(monkeypatch)
    assert tiny.value() == 101
    assert tiny.value() == 101
    tiny.write("value.h", "#define VALUE 3\n")
    assert tiny.value() == 103


@pytest.mark.parametrize("shift", [0, -86400, 86400], ids=["now", "a day back", "a day ahead"])
def test_touched_file_is_a_hit(tiny, shift):
    tiny.load()
    tiny.compiled()
    then = time.time() + shift
    for path in tiny.folder.iterdir():
        os.utime(path, (then, then))
    tiny.load()
    assert tiny.compiled() == []


def test_edit_older_than_the_object_is_compiled(tiny):
    tiny.load()
    header = tiny.write("value.h", "#define VALUE 4\n")
    os.utime(header, (1, 1))
    assert tiny.value() == 104


def test_touched_source_beside_an_edited_one_is_not_compiled(tiny):
    tiny.load()
    tiny.compiled()
    tiny.write("value.h", "#define VALUE 5\n")
    os.utime(tiny.folder / "other.cpp")
    assert tiny.value() == 105
    assert tiny.compiled() == ["module.cpp"]


def value_with(tiny, *folders):
    """Returns value() of a build with these folders of the project on its include path."""
    return tiny.value(extra_include_paths=[str(tiny.folder / folder) for folder in folders])


def test_new_header_that_shadows_the_old_one_is_noticed(tiny):
    tiny.write("module.cpp", (tiny.folder / "module.cpp").read_text().replace("value.h", "v/x.h"))
    tiny.write("second/v/x.h", "#define VALUE 1\n")
    assert value_with(tiny, "first", "second") == 101
    tiny.write("first/v/x.h", "#define VALUE 8\n")
    assert value_with(tiny, "first", "second") == 108


@pytest.mark.slow
def test_new_header_that_shadows_one_of_the_users_own_is_noticed(tiny):
    """The including file is in the second folder, which only a quoted include searches first."""
    (tiny.folder / "value.h").unlink()
    for name in ("first", "second"):
        tiny.write(f"{name}/{name}.h", "")
    tiny.write("second/value.h", "#include <number.h>\n#define VALUE NUMBER\n")
    tiny.write("second/number.h", "#define NUMBER 1\n")
    assert value_with(tiny, "first", "second") == 101
    tiny.write("first/number.h", "#define NUMBER 8\n")
    assert value_with(tiny, "first", "second") == 108
    tiny.write("first/value.h", "#define VALUE 9\n")
    assert value_with(tiny, "first", "second") == 109


def test_new_header_beside_the_including_header_is_noticed(tiny):
    """The old header is in the first folder, but an including file's own folder comes before it."""
    (tiny.folder / "value.h").unlink()
    tiny.write("first/number.h", "#define NUMBER 1\n")
    tiny.write("second/value.h", '#include "number.h"\n#define VALUE NUMBER\n')
    assert value_with(tiny, "first", "second") == 101
    tiny.write("second/number.h", "#define NUMBER 8\n")
    assert value_with(tiny, "first", "second") == 108


@pytest.mark.slow
def test_new_header_beside_the_source_is_noticed(tiny):
    (tiny.folder / "value.h").unlink()
    tiny.write("include/value.h", "#define VALUE 1\n")
    assert value_with(tiny, "include") == 101
    tiny.write("value.h", "#define VALUE 9\n")
    assert value_with(tiny, "include") == 109


@pytest.mark.parametrize("target", ["nowhere.h", "../elsewhere/nowhere.h", "loop/../link.h"])
def test_dangling_link_is_not_a_header_until_its_target_appears(tiny, target):
    (tiny.folder / "value.h").unlink()
    tiny.write("second/value.h", "#define VALUE 1\n")
    first = tiny.folder / "first"
    first.mkdir()
    (first / "value.h").symlink_to("link.h")
    (first / "link.h").symlink_to(target)
    assert value_with(tiny, "first", "second") == 101
    tiny.compiled()
    assert value_with(tiny, "first", "second") == 101
    assert tiny.compiled() == []
    if "loop" in target:
        (first / "link.h").unlink()
        target = "link.h"
    tiny.write(f"first/{target}", "#define VALUE 8\n")
    assert value_with(tiny, "first", "second") == 108


@pytest.mark.slow
def test_new_target_of_a_dangling_link_to_a_folder_is_noticed(tiny):
    tiny.write("module.cpp", (tiny.folder / "module.cpp").read_text().replace("value.h", "v/x.h"))
    tiny.write("second/v/x.h", "#define VALUE 1\n")
    (tiny.folder / "first").mkdir()
    (tiny.folder / "first" / "v").symlink_to("../elsewhere")
    assert value_with(tiny, "first", "second") == 101
    tiny.compiled()
    assert value_with(tiny, "first", "second") == 101
    assert tiny.compiled() == []
    tiny.write("elsewhere/x.h", "#define VALUE 8\n")
    assert value_with(tiny, "first", "second") == 108


@pytest.mark.slow
def test_header_that_replaces_a_folder_of_the_same_name_is_noticed(tiny):
    (tiny.folder / "value.h").unlink()
    tiny.write("second/value.h", "#define VALUE 1\n")
    tiny.write("first/value.h/notes.txt", "")
    assert value_with(tiny, "first", "second") == 101
    tiny.compiled()
    assert value_with(tiny, "first", "second") == 101
    assert tiny.compiled() == []
    shutil.rmtree(tiny.folder / "first" / "value.h")
    tiny.write("first/value.h", "#define VALUE 8\n")
    assert value_with(tiny, "first", "second") == 108


@pytest.mark.parametrize("flag", ["-MP", "-MT other.o -MP"])
def test_edited_header_is_noticed_with_flags_for_depfiles(tiny, flag):
    flags = flag.split()
    assert tiny.value(extra_cflags=flags) == 101
    tiny.write("value.h", "#define VALUE 2\n")
    tiny.compiled()
    assert tiny.value(extra_cflags=flags) == 102
    assert tiny.compiled() == ["module.cpp"]


@pytest.mark.slow
def test_new_header_is_noticed_with_flags_for_depfiles(tiny):
    (tiny.folder / "value.h").unlink()
    tiny.write("second/value.h", "#define VALUE 1\n")
    options = {
        "extra_cflags": ["-MP"],
        "extra_include_paths": [str(tiny.folder / name) for name in ("first", "second")],
    }
    assert tiny.value(**options) == 101
    tiny.write("first/value.h", "#define VALUE 8\n")
    assert tiny.value(**options) == 108


def test_new_optional_header_is_noticed(tiny):
    optional = '#if __has_include("optional.h")\n#include "optional.h"\n#endif\n#ifndef EXTRA\n'
    tiny.write("value.h", optional + "#define EXTRA 0\n#endif\n#define VALUE (1 + EXTRA)\n")
    assert tiny.value() == 101
    tiny.write("optional.h", "#define EXTRA 20\n")
    assert tiny.value() == 121


@pytest.mark.parametrize("flag", ["-include {}", "@{}"])
def test_edit_of_a_file_that_a_flag_names_is_noticed(tiny, flag):
    option = {"-include {}": "#define EXTRA {}\n", "@{}": "-DEXTRA={}\n"}[flag]
    file = tiny.write("named", option.format(1))
    tiny.write("value.h", "#define VALUE EXTRA\n")
    flags = flag.format(file).split()
    assert tiny.value(extra_cflags=flags) == 101
    tiny.write("named", option.format(2))
    assert tiny.value(extra_cflags=flags) == 102


@pytest.mark.slow
def test_edit_of_a_nested_response_file_is_noticed(tiny):
    inner = tiny.write("inner", "-DEXTRA=1\n")
    outer = tiny.write("outer", f"-DOTHER @{inner}\n")
    tiny.write("value.h", "#define VALUE EXTRA\n")
    flags = [f"@{outer}"]
    assert tiny.value(extra_cflags=flags) == 101
    tiny.write("inner", "-DEXTRA=2\n")
    assert tiny.value(extra_cflags=flags) == 102


def test_cyclic_response_files_are_read_once(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text(f"-La @{two}")
    two.write_text(f"-Lb @{one} 'an open quote")
    assert files_in_flags(["c++", f"@{one}"]) == [str(one), str(two)]
    assert negative_dependencies.of_libraries([], ["c++", f"@{one}"]) == ({}, [])


def test_unrelated_new_file_is_a_hit(tiny):
    tiny.load()
    tiny.compiled()
    tiny.write("notes.txt", "unrelated")
    tiny.load()
    assert tiny.compiled() == []


@pytest.mark.parametrize(
    "options",
    [
        {"extra_cflags": ["-DOTHER"]},
        {"extra_ldflags": ["-Wl,-O1"]},
        {"extra_include_paths": ["/usr/include/c++"]},
    ],
    ids=str,
)
def test_changed_flag_is_another_build(tiny, options):
    tiny.load()
    path = jit_loader.loaded("tiny").path
    tiny.load(**options)
    assert jit_loader.loaded("tiny").path != path
    tiny.load()
    assert jit_loader.loaded("tiny").path == path


@pytest.mark.slow
def test_changed_linker_flag_recompiles_no_source(tiny):
    tiny.load()
    tiny.compiled()
    tiny.load(extra_ldflags=["-Wl,-O1"])
    assert tiny.compiled() == []


def test_changed_cpath_is_noticed(tiny, monkeypatch):
    (tiny.folder / "value.h").unlink()
    for number in (1, 2):
        tiny.write(f"include{number}/value.h", f"#define VALUE {number}\n")
    monkeypatch.setenv("CPATH", str(tiny.folder / "include1"))
    assert tiny.value() == 101
    monkeypatch.setenv("CPATH", str(tiny.folder / "include2"))
    assert tiny.value() == 102


def test_unrelated_environment_variable_is_a_hit(tiny, monkeypatch):
    tiny.load()
    tiny.compiled()
    monkeypatch.setenv("SOME_VARIABLE", "1")
    tiny.load()
    assert tiny.compiled() == []


def test_changed_compiler_of_the_same_name_is_noticed(tiny):
    tiny.load()
    tiny.compiled()
    compiler = tiny.calls_path.parent / "c++"
    compiler.write_text(compiler.read_text().replace("exec", "# another compiler\nexec"))
    tiny.load()
    assert tiny.compiled() == ["module.cpp", "other.cpp"]


@pytest.mark.slow
def test_changed_compiler_behind_a_wrapper_is_noticed(tiny, monkeypatch):
    """The wrapper is unchanged, but the compiler that it calls has changed."""
    tiny.load()
    tiny.compiled()
    slot_folder = os.path.dirname(os.path.dirname(jit_loader.loaded("tiny").path))
    manifests = _manifests(slot_folder)
    compilers = [tool for m in manifests for tool in m["tools"] if "cc1plus" in tool]
    if not compilers:
        pytest.skip("the compiler is not g++")
    real = digests.read_digest
    monkeypatch.setattr(
        digests,
        "read_digest",
        lambda path: "0" * 32 if path == compilers[0] else real(path),
    )
    shutil.rmtree(os.path.join(cache_folder(), "memos"))
    os.unlink(os.path.join(cache_folder(), "newest-memo"))  # it knows the compiler's digest
    tiny.load()
    assert tiny.compiled() == ["module.cpp", "other.cpp"]


def test_changed_linked_library_is_noticed(tiny):
    use_library(tiny)
    make_library(tiny.folder / "lib", 1)
    flags = [f"-L{tiny.folder / 'lib'}", "-lmore"]
    assert tiny.value(extra_ldflags=flags) == 2
    make_library(tiny.folder / "lib", 50)
    assert tiny.value(extra_ldflags=flags) == 51


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


def make_library(folder, value, shared=False):
    folder.mkdir(exist_ok=True)
    source = folder / "more.cpp"
    source.write_text(f'extern "C" long more(void) {{ return {value}; }}\n')
    if shared:
        subprocess.run(["g++", "-shared", "-fPIC", source, "-o", folder / "libmore.so"], check=True)
        return
    subprocess.run(["g++", "-c", "-fPIC", source, "-o", folder / "more.o"], check=True)
    (folder / "libmore.a").unlink(missing_ok=True)
    subprocess.run(["ar", "rc", folder / "libmore.a", folder / "more.o"], check=True)


def use_library(tiny):
    tiny.write(
        "other.cpp",
        'extern "C" long more(void);\nextern "C" long other(void) { return more(); }\n',
    )


@pytest.mark.parametrize(
    "flags",
    [
        "-L{0} -L{1} -lmore",
        "-L {0} -L {1} -l more",
        "--library-directory={0} --library-directory {1} -lmore",
        "-Wl,-L,{0} -Wl,-L{1} -lmore",
        "-Wl,-L{0},-L{1},-l,more",
        "-Xlinker -L{0} -Xlinker -L -Xlinker {1} -lmore",
        "-Wl,-L{1} -lmore -L{0}",
        "-L{0} -L{1} -l:libmore.a",
        "-L{0} -L{1} -l:more.o",
        "@{0}/flags",
        "-Wl,@{0}/flags",
    ],
)
def test_new_library_in_an_earlier_folder_is_noticed(tiny, flags):
    use_library(tiny)
    first, second = tiny.folder / "first", tiny.folder / "second"
    make_library(second, 1)
    tiny.write("first/flags", f"-L{first} -L'{second}'\n-lmore\n")
    flags = flags.format(first, second).split()
    assert tiny.value(extra_ldflags=flags) == 2
    make_library(first, 6)
    assert tiny.value(extra_ldflags=flags) == 7


@pytest.mark.slow
def test_new_library_in_a_later_folder_is_a_hit(tiny):
    use_library(tiny)
    first, second = tiny.folder / "first", tiny.folder / "second"
    make_library(first, 1)
    second.mkdir()
    flags = [f"-L{first}", f"-L{second}", "-lmore"]
    tiny.load(extra_ldflags=flags)
    path = jit_loader.loaded("tiny").path
    make_library(second, 6)
    assert tiny.value(extra_ldflags=flags) == 2
    assert jit_loader.loaded("tiny").path == path


@pytest.mark.slow
def test_new_shared_library_beside_the_static_one_is_noticed(tiny):
    use_library(tiny)
    make_library(tiny.folder / "lib", 1)
    library = tiny.folder / "lib"
    flags = [f"-L{library}", "-lmore", f"-Wl,-rpath,{library}"]
    assert tiny.value(extra_ldflags=flags) == 2
    make_library(library, 6, shared=True)
    (library / "libmore.a").touch()
    assert tiny.value(extra_ldflags=flags) == 7


@pytest.mark.slow
def test_redirected_symlink_to_a_library_is_noticed(tiny):
    use_library(tiny)
    for value in (1, 2):
        make_library(tiny.folder / f"lib{value}", value)
    link = tiny.folder / "lib"
    link.mkdir()
    (link / "libmore.a").symlink_to("../lib1/libmore.a")
    flags = [f"-L{link}", "-lmore"]
    assert tiny.value(extra_ldflags=flags) == 2
    (link / "libmore.a").unlink()
    (link / "libmore.a").symlink_to("../lib2/libmore.a")
    assert tiny.value(extra_ldflags=flags) == 3


@pytest.mark.slow
def test_removed_header_that_another_one_replaces_is_noticed(tiny, monkeypatch, tmp_path):
    (tiny.folder / "value.h").unlink()
    for number in (1, 2):
        (tmp_path / f"include{number}").mkdir()
        (tmp_path / f"include{number}" / "value.h").write_text(f"#define VALUE {number}\n")
    monkeypatch.setenv("CPATH", f"{tmp_path}/include1:{tmp_path}/include2")
    assert tiny.value() == 101
    (tmp_path / "include1" / "value.h").unlink()
    assert tiny.value() == 102


@pytest.mark.slow
def test_new_folder_that_an_include_could_mean_compiles_at_most_once(tiny):
    tiny.write("module.cpp", (tiny.folder / "module.cpp").read_text().replace("value.h", "v/x.h"))
    tiny.write("include/v/x.h", "#define VALUE 1\n")
    include = [str(tiny.folder / "include")]
    tiny.load(extra_include_paths=include)
    (tiny.folder / "v").mkdir()
    tiny.load(extra_include_paths=include)
    tiny.compiled()
    tiny.load(extra_include_paths=include)
    assert tiny.compiled() == []


def test_edit_between_link_and_publication_is_noticed(tiny, monkeypatch):
    real = loaded.open_library

    def slow(*arguments):
        tiny.write("other.cpp", 'extern "C" long other(void) { return 200; }\n')
        time.sleep(0.1)  # until the stats of the edit and of the library are settled
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loaded, "open_library", slow)
        assert tiny.value() == 101
    assert tiny.value() == 201


@pytest.mark.slow
def test_header_removed_between_link_and_publication_is_noticed(tiny, monkeypatch):
    real = loaded.open_library

    def slow(*arguments):
        (tiny.folder / "value.h").unlink()
        time.sleep(0.1)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loaded, "open_library", slow)
        assert tiny.value() == 101
    with pytest.raises(jit_loader.CompileError, match=r"value\.h: No such file"):
        tiny.load()


def test_arguments_in_cxx_are_used(tiny, monkeypatch):
    tiny.write("value.h", "")
    monkeypatch.setenv("CXX", "c++ -DVALUE=5")
    assert tiny.value() == 105
    monkeypatch.setenv("CXX", "env c++ -DVALUE=6")
    assert tiny.value() == 106


def test_root_is_not_replaced_in_a_longer_name(tmp_path):
    from _jit_loader.key.roots import Roots

    roots = Roots(str(tmp_path / "foo"))
    assert roots.relative_text(f"-I{tmp_path}/foo/include") == "-I<project>/include"
    assert roots.relative_text(f"-I{tmp_path}/foo") == "-I<project>"
    for name in ("foo-common", "foobar", "foo.old", "foo_2"):
        assert roots.relative_text(f"-I{tmp_path}/{name}") == f"-I{tmp_path}/{name}"


def test_root_is_not_replaced_in_a_longer_path(tmp_path):
    """In a container, another path can end with the complete path of the project."""
    from _jit_loader.key.roots import Roots

    roots = Roots(str(tmp_path / "foo"))
    assert roots.relative_text(f"-I/data{tmp_path}/foo/include") == f"-I/data{tmp_path}/foo/include"
    flags = f"-I{tmp_path}/foo/one -I{tmp_path}/foo/two"
    assert roots.relative_text(flags) == "-I<project>/one -I<project>/two"
    objects = f"{tmp_path}/foo/one.o {tmp_path}/foo/two.o"
    assert roots.relative_text(objects) == "<project>/one.o <project>/two.o"
    assert roots.relative_text(f"-include {tmp_path}/foo/x.h") == "-include <project>/x.h"


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/usr/src"), reason="there is no /usr/src")
def test_headers_of_a_project_below_usr_are_tracked(tiny, with_mounts):
    def load_there():
        mount("tmpfs", "/usr/src", "tmpfs")
        shutil.copytree(tiny.folder, "/usr/src/app/csrc")
        include = Path("/usr/src/app/include")
        include.mkdir()
        (include / "value.h").write_text(
            '#if __has_include("optional.h")\n#include "optional.h"\n'
            "#else\n#define VALUE 1\n#endif\n"
        )
        Path("/usr/src/app/csrc/value.h").unlink()
        sources = [f"/usr/src/app/csrc/{name}.cpp" for name in ("module", "other")]
        values = []
        for _ in range(2):
            module = jit_loader.load("tiny", sources, extra_include_paths=[str(include)])
            values.append(module.value())
            (include / "optional.h").write_text("#define VALUE 2\n")
        return values

    assert with_mounts(load_there) == [101, 102]


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        ("/usr/local/cuda-13.0/include/cuda.h", False),  # a hit must not need CUDA
        ("/usr/include/stdio.h", False),
        ("/usr/local/src/app/include/value.h", True),
        ("/opt/app/include/value.h", True),
    ],
)
def test_headers_of_the_user_and_of_the_system_are_distinguished(path, is_own, tmp_path):
    assert ownership(Roots(str(tmp_path)))(path) == is_own


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        ("/home/me/libs/gcc-13/include/c++/13/vector", False),
        ("/home/me/libs/mine/value.h", True),
        ("/home/me/include/value.h", True),
    ],
)
def test_folders_beside_a_compiler_are_the_users(path, is_own, tmp_path):
    tools = ["/home/me/libs/gcc-13/bin/g++", "/home/me/libs/gcc-13/libexec/gcc/x86_64/13/cc1plus"]
    assert ownership(Roots(str(tmp_path)), tools)(path) == is_own


def test_assembly_source_and_its_includes_are_tracked(tiny):
    """There is no depfile: only the assembler reads the file."""
    included = tiny.write("given.inc", ".set given, 1\n")
    assembly = tiny.write(
        "data.s",
        f'.data\n.globl data\n.hidden data\ndata: .byte given\n.include "{included}"\n'
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
    assembly.write_text(assembly.read_text().replace("byte given", "byte given + 1"))
    assert value() == 3
    included.write_text(".set given, 7\n")
    assert value() == 9
    assert tiny.compiled() == ["data.s", "data.s"]


def test_another_working_directory_is_a_hit(tiny, monkeypatch, tmp_path):
    tiny.load()
    tiny.compiled()
    monkeypatch.chdir(tmp_path)
    tiny.load()
    assert tiny.compiled() == []


def test_moved_project_is_a_hit(tiny, tmp_path):
    tiny.load()
    tiny.compiled()
    moved = tmp_path / "moved" / "deeper"
    moved.parent.mkdir()
    shutil.move(tiny.folder, moved)
    tiny.folder = moved
    assert tiny.value() == 101
    assert tiny.compiled() == []


@pytest.mark.slow
def test_edit_in_a_copy_of_the_project_is_not_hidden_by_the_original(tiny, tmp_path):
    tiny.settle()
    copy = tmp_path / "copy"
    shutil.copytree(tiny.folder, copy)
    tiny.folder = copy
    tiny.write("value.h", "#define VALUE 6\n")
    assert tiny.value() == 106


@pytest.mark.slow
def test_copy_of_a_project_can_name_a_file_of_the_original(tiny, tmp_path):
    module = (tiny.folder / "module.cpp").read_text()
    tiny.write("module.cpp", module.replace("value.h", str(tiny.folder / "value.h")))
    tiny.settle()
    copy = tmp_path / "copy"
    shutil.copytree(tiny.folder, copy)
    original, tiny.folder = tiny.folder, copy
    assert tiny.value() == 101
    (original / "value.h").write_text("#define VALUE 6\n")
    assert tiny.value() == 106
    tiny.write("value.h", "#define VALUE 7\n")
    assert tiny.value() == 106


def test_pytorch_and_python_are_part_of_the_key(tiny, monkeypatch):
    import torch

    from _jit_loader.key.request import Request

    key = Request("tiny", tiny.sources).key
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "99.0")
        assert Request("tiny", tiny.sources).key != key
    with monkeypatch.context() as patch:
        patch.setattr("_jit_loader.key.request.EXTENSION_SUFFIXES", [".cpython-399.so"])
        assert Request("tiny", tiny.sources).key != key
    assert Request("tiny", tiny.sources).key == key


@pytest.mark.slow
def test_pytorch_headers_are_recorded(tiny, monkeypatch):
    """PyTorch's headers are system headers, which -MMD leaves out of depfiles."""
    tiny.write(
        "other.cpp",
        '#include <c10/util/Exception.h>\nextern "C" long other(void) { return 100; }\n',
    )
    tiny.load()
    slot_folder = os.path.dirname(os.path.dirname(jit_loader.loaded("tiny").path))
    files = _manifests(slot_folder)[0]["files"]
    assert "<packages>/torch/include/c10/util/Exception.h" in files


def _manifests(slot_folder):
    from _jit_loader.cache.store import read_manifest

    found = [read_manifest(entry.path) for entry in os.scandir(slot_folder) if entry.is_dir()]
    return [manifest for manifest in found if manifest]


INCBIN = """\
#define INCLUDE(name, path) __asm__(".global " #name "\\n" #name ": .incbin \\"" path "\\"\\n")
"""


@pytest.mark.parametrize("how", ["literal", "by a macro of a header", "on the include path"])
def test_edit_of_an_incbin_file_is_noticed(tiny, how):
    data = tiny.write("data/a b.bin", "\x01")
    name = "a b.bin" if how == "on the include path" else str(data)
    line = f'__asm__(".global data\\ndata: .incbin \\"{name}\\"\\n");\n'
    if how == "by a macro of a header":
        tiny.write("incbin.h", INCBIN)
        line = f'#include "incbin.h"\nINCLUDE(data, "{name}");\n'
    tiny.write(
        "other.cpp",
        line + 'extern "C" const char data[] __attribute__((visibility("hidden")));\n'
        'extern "C" long other(void) { return data[0]; }\n',
    )
    options = {"extra_include_paths": [str(tiny.folder / "data")]}
    assert tiny.value(**options) == 2
    data.write_text("\x05")
    assert tiny.value(**options) == 6
    tiny.compiled()
    assert tiny.value(**options) == 6
    assert tiny.compiled() == []


def test_statics_are_not_shared_between_the_old_and_the_new_module(tiny):
    """g++ marks such statics as unique in the process, across all libraries."""
    statics = """
template <class T> struct Counter { static T count; };
template <class T> T Counter<T>::count = 0;
inline long next_inline() { static long count = 0; return ++count; }
"""
    text = (tiny.folder / "module.cpp").read_text()
    count = "(++Counter<long>::count + 10 * next_inline())"
    tiny.write("module.cpp", statics + text.replace("VALUE + other()", f"100 * VALUE + {count}"))
    old = tiny.load()
    assert [old.value(), old.value()] == [111, 122]
    tiny.write("value.h", "#define VALUE 2\n")
    new = tiny.load()
    assert new.value() == 211
    assert old.value() == 133


@pytest.mark.slow
def test_edit_of_a_file_that_inline_assembly_includes_is_noticed(tiny):
    inner = tiny.write("inner.inc", ".set given, 1\n")
    outer = tiny.write("outer.inc", f'.include "{inner}"\n')
    tiny.write(
        "other.cpp",
        f'__asm__(".include \\"{outer}\\"\\n.data\\ndata: .byte given\\n.text\\n");\n'
        'extern "C" const char data[] __attribute__((visibility("hidden")));\n'
        'extern "C" long other(void) { return data[0]; }\n',
    )
    assert tiny.value() == 2
    inner.write_text(".set given, 7\n")
    assert tiny.value() == 8
    tiny.compiled()
    assert tiny.value() == 8
    assert tiny.compiled() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "flag"),
    [
        ('__has_include("optional.h")', None),
        ("__has_include(OPTIONAL)", None),
        ("__has_include(QUOTED(optional.h))", None),
        ("__has_include(QUOTED( optional.h ))", None),
        ("__has_include(BY_FLAG)", '-DBY_FLAG="optional.h"'),
        ("__has_include(BY_FLAG)", '-Wp,-DBY_FLAG="optional.h",-DOTHER=1'),
        ("BY_FLAG", '-DBY_FLAG=__has_include("optional.h")'),
    ],
)
def test_header_named_only_in_has_include_is_noticed(tiny, question, flag):
    tiny.write(
        "value.h",
        f'#define OPTIONAL "optional.h"\n#define QUOTED(name) #name\n#if {question}\n'
        "#define VALUE 20\n#else\n#define VALUE 1\n#endif\n",
    )
    flags = [shlex.quote(flag)] if flag else []
    for _ in range(2):
        assert tiny.value(extra_cflags=flags) == 101
        optional = tiny.write("optional.h", "")
        assert tiny.value(extra_cflags=flags) == 120
        optional.unlink()


@pytest.mark.slow
def test_has_include_of_an_invalid_name_compiles(tiny):
    """Compilers report it as absent."""
    text = '#if 0\n__has_include("../a\0b.h") __has_include(QUOTED(a\0b))\n#endif\n'
    tiny.write("value.h", f"{text}#define VALUE 1\n")
    assert tiny.value() == 101


@pytest.mark.slow
def test_file_that_a_macro_names_is_not_an_input(tiny):
    log = tiny.write("log", "")
    asks = '#define CONFIG "config.h"\n#if __has_include(CONFIG)\n#endif\n'
    tiny.write("value.h", f"{asks}#define VALUE 1\n")
    flags = [shlex.quote(f'-DLOG="{log}"')]
    assert tiny.value(extra_cflags=flags) == 101
    tiny.compiled()
    log.write_text("more")
    assert tiny.value(extra_cflags=flags) == 101
    assert tiny.compiled() == []


@pytest.mark.slow
def test_new_header_in_a_parent_folder_is_noticed(tiny):
    for name, text in (
        ("module.cpp", tiny.folder.joinpath("module.cpp").read_text()),
        ("other.cpp", tiny.folder.joinpath("other.cpp").read_text()),
    ):
        tiny.write(f"deep/{name}", text.replace("value.h", "../value.h"))
    (tiny.folder / "value.h").unlink()
    tiny.write("include/value.h", "#define VALUE 1\n")
    tiny.write("include/deeper/unused.h", "")
    options = {"extra_include_paths": [str(tiny.folder / "include" / "deeper")]}
    sources = [str(tiny.folder / "deep" / name) for name in ("module.cpp", "other.cpp")]
    assert jit_loader.load("tiny", sources, **options).value() == 101
    tiny.write("value.h", "#define VALUE 9\n")
    assert jit_loader.load("tiny", sources, **options).value() == 109


@pytest.mark.slow
def test_paths_inside_a_build_are_those_of_its_own_checkout(tiny, tmp_path):
    """A second checkout must not get the first one's paths."""
    tiny.write("value.h", "#define VALUE (sizeof(HERE) - 1)\n")
    copy = tmp_path / "another copy"
    shutil.copytree(tiny.folder, copy)
    for folder in (tiny.folder, copy):
        tiny.folder = folder
        rpath = f"-Wl,-rpath,'{folder}/lib'"
        module = tiny.load(extra_cflags=[f"'-DHERE=\"{folder}\"'"], extra_ldflags=[rpath])
        assert module.value() == 100 + len(str(folder))
        with open(module.__file__, "rb") as file:
            assert os.fsencode(f"{folder}/lib") in file.read()


DRY_RUN = """\
#$ TOP={folder}/toolkit
#$ INCLUDES="-I{folder}/toolkit/include"
#$ "{folder}/hosts"/gcc -D__CUDA_ARCH_LIST__=750 -E -x c++ -D__CUDACC__ -I"{folder}/one" \
-I"{folder}/two" "-isystem" "{folder}/three" -D__CUDACC_VER__=13 -include "cuda_runtime.h" -m64 \
"/dev/null" -o "/tmp/tmpxft_1_null.cpp4.ii"
"""


def test_search_folders_and_tools_are_read_from_nvccs_dry_run(tmp_path):
    """Only nvcc knows all the spellings of its flags. The host compiler is a script."""
    host = tmp_path / "hosts" / "gcc"
    host.parent.mkdir()
    host.write_text('#!/bin/sh\nexec gcc "$@"\n')
    (tmp_path / "said").write_text(DRY_RUN.format(folder=tmp_path))
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/said\n')
    for program in (host, nvcc):
        program.chmod(0o755)
    command = f"{nvcc} -MD -MF x.d --include-path /one,/two -c x.cu -o x.o -ccbin {host.parent}"
    compiler = nvcc_compiler(command.split())
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith(f"--include-path /one,/two -ccbin {host.parent} ")
    assert "x.cu" not in asked
    for name in ("one", "two", "three"):
        assert str(tmp_path / name) in compiler.search_folders
    assert str(host) in compiler.tools


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize(
    "flags",
    [
        "-I{0} -I {1}",
        "-I{0},{1}",
        "-I {0},{1}",
        "--include-path {0} --include-path={1}",
        "-isystem {0} --system-include {1}",
        "-Xcompiler=-I{0},-I{1}",
        "-Xcompiler -I{0} --compiler-options=-fPIC,-I,{1}",
        "-x cu -MP -dc -I{0} -I{1}",
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
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {shutil.which(name)} "$@"\n')
        (tmp_path / name).chmod(0o755)
    compiler = nvcc_compiler(["nvcc", "-ccbin", str(tmp_path), "-c", "x.cu", "-o", "x.o"])
    assert {str(tmp_path / "gcc"), shutil.which("gcc")} <= set(compiler.tools)
