"""Tests the behaviour and the output of each command of python -m jit_loader."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import jit_loader
from _jit_loader.cache import cache_folder, pruning
from _jit_loader.cache.files import write_checked
from _jit_loader.commands import doctor as doctor_command
from _jit_loader.commands import main
from _jit_loader.key import machine, toolchain
from _jit_loader.key.request import Request
from _jit_loader.report.text import format_age, format_size, parse_age, parse_size
from tests.support.extension import MODULE, OTHER, ROOT, binding, program, write


def source_of(name):
    return binding(name, "long answer();\n", "answer();")


@pytest.fixture
def command(capsys):
    """Runs a command in this process; returns its exit code, stdout and stderr."""
    return lambda *arguments: (main([*arguments]), *capsys.readouterr())


@pytest.fixture
def project(cache, tmp_path):
    """A project with the ops one and two; two's wrapper requests another flag."""
    folder = tmp_path / "project"
    for name in ("one", "two"):
        write(folder / "bindings" / f"{name}.cpp", source_of(name))
        write(folder / "kernels" / f"{name}_cpu.cpp", "long answer() { return 42; }\n")
    write(folder / "bindings" / "__init__.py", "")
    flag = "from jit_loader import load_op\nload_op('two', extra_cflags=['-DTWO'])\n"
    write(folder / "bindings" / "two.py", "print('importing two')\n" + flag)
    return folder


@pytest.fixture
def run_in(python):
    """Runs a command as a user does, in another process."""

    def run(folder, *arguments, **environment):
        environment = {"JIT_LOADER_QUIET": "0", **environment}
        return python("-m", "jit_loader", *arguments, cwd=folder, **environment)

    return run


# Without a command


def test_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"jit_loader {jit_loader.__version__}\n"


HELP = """
import runpy, sys
sys.modules["torch"] = None
sys.argv[1:] = ["--help"]
runpy.run_module("jit_loader", run_name="__main__")
"""


@pytest.mark.parametrize("options", [["-OO", "-m", "jit_loader", "list"], ["-c", HELP]])
def test_commands_need_no_docstrings_and_help_no_pytorch(cache, options):
    finished = subprocess.run([sys.executable, *options], cwd=ROOT, capture_output=True)
    assert (finished.returncode, finished.stderr) == (0, b"")


# list


def test_list_prints_a_table(command, tiny):
    tiny.load()
    code, out, _ = command("list")
    header, row, total = out.splitlines()
    assert code == 0
    assert header.split() == ["name", "key", "size", "age", "torch", "CUDA"]
    assert re.match(r"tiny  \w{8}/\w{8}  [\d.]+ kB  \d+ s  \S+  no$", row)
    assert re.fullmatch(rf"1 build, [\d.]+ kB on disk, in {cache_folder()}", total)


def test_list_prints_json(command, tiny):
    module = tiny.load()
    _, out, _ = command("list", "--json")
    (build,) = json.loads(out)
    assert build["folder"] == os.path.dirname(module.__file__)
    assert build["folder"].endswith(build["key"])
    assert build["size"] == pruning.size_of(build["folder"])
    assert abs(build["created"] - time.time()) < 60
    assert (build["name"], build["cuda"]) == ("tiny", None)


def test_failed_builds_are_not_counted(command, doctor, without_nvcc, tiny):
    tiny.load()
    tiny.write("other.cpp", "int a = ;\n")
    tiny.error(RuntimeError)
    assert len(json.loads(command("list", "--json")[1])) == 1
    assert ", 1 build, " in doctor()[1]["cache"]["text"]
    assert "removed 0 builds, 0 B; 1 build, " in command("prune")[1]
    assert re.match(r"removed 1 build, [\d.]+ kB; 0 builds, ", command("clean", "tiny")[1])


def test_list_of_an_empty_cache_says_that_there_are_no_builds(command, cache):
    shutil.rmtree(cache)
    assert command("list")[:2] == (0, f"0 builds, 0 B on disk, in {cache_folder()}\n")


def test_pipe_closed_by_the_reader_is_not_an_error():
    """For example, head closes it after ten lines."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "jit_loader", "list"]
    finished = subprocess.run(command, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (finished.returncode, finished.stderr) == (141, b"")


# prune, clean


def test_prune_removes_what_is_too_old_or_too_large(command, tiny):
    for option in ["--max-age", "150s"], ["--max-size", "1B"]:
        library = tiny.load().__file__
        assert command("prune", "--max-age", "150s")[1].startswith("removed 0 builds, 0 B; 1 ")
        os.utime(library, (time.time() - 200, time.time() - 200))
        code, out, _ = command("prune", *option)
        assert code == 0
        assert re.match(r"removed 1 build, [\d.]+ kB; 0 builds, [\d.]+ k?B, left in ", out)


def test_prune_without_options_applies_the_limit(command, tiny, monkeypatch):
    tiny.load()
    assert command("prune")[1].startswith("removed 0 builds, 0 B; 1 build, ")
    monkeypatch.setenv("JIT_LOADER_CACHE_LIMIT", "1B")
    assert command("prune")[1].startswith("removed 1 build, ")


@pytest.mark.parametrize("option", [["--max-size", "2 potatoes"], ["--max-age", "30"]])
def test_prune_refuses_invalid_quantities(command, option):
    code, _, err = command("prune", *option)
    assert code == 1
    assert err.startswith(f"jit_loader: {option[1]!r} is not a")


def test_clean_reports_an_unknown_name(command, tiny):
    tiny.load()
    code, out, err = command("clean", "tony", "../cache")
    assert code == 1
    assert "there is no build of 'tony' in " in err
    assert "there is no build of '../cache' in " in err
    assert out.startswith("removed 0 builds, 0 B; 1 build, ")


def test_clean_without_names_asks_on_a_terminal(command, tiny, monkeypatch):
    tiny.load()
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    questions, answers = [], iter(["", "y"])
    monkeypatch.setattr("builtins.input", lambda text: questions.append(text) or next(answers))
    assert command("clean")[0] == 1
    code, out, _ = command("clean")
    assert (code, out[:15]) == (0, "removed 1 build")
    assert questions[0] == f"Remove all of {cache_folder()} (1 build)? [y/N] "


def test_clean_without_names_needs_yes_in_a_script(command, tiny, monkeypatch):
    tiny.load()
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    code, out, err = command("clean")
    assert (code, out) == (1, "")
    assert "jit_loader clean --yes" in err
    assert command("clean", "--yes")[1].startswith("removed 1 build, ")


# build


@pytest.mark.slow
def test_build_without_names_builds_all_ops(project, run_in):
    finished = run_in(project / "kernels", "build")
    assert finished.returncode == 0
    assert finished.stdout == ""
    for name, flags in ("one", []), ("two", ["-DTWO"]):
        assert re.search(rf"^{name}: first build: built in ", finished.stderr, re.MULTILINE)
        jit_loader.load_op(name, project=str(project), extra_cflags=flags)
        assert not jit_loader.loaded(name).compiled


def test_build_in_a_project_without_ops_succeeds(tmp_path, monkeypatch):
    for name in ("kernels", "bindings"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["build"]) == 0


def test_op_that_is_named_twice_is_built_once(project, run_in):
    assert run_in(project, "build", "one", "one").stderr.count("one: first build: built in ") == 1


@pytest.mark.slow
def test_build_continues_after_a_failure(project, run_in):
    write(project / "kernels" / "one_cpu.cpp", "long answer() { return ; }\n")
    finished = run_in(project, "build", JIT_LOADER_QUIET="1")
    assert finished.returncode == 1
    assert finished.stderr.startswith("one: kernels/one_cpu.cpp:1: error: ")
    assert finished.stdout == "built 1 of 2 ops; failed: one\n"
    builds = json.loads(run_in(project, "list", "--json").stdout)
    assert [build["name"] for build in builds] == ["two"]


@pytest.mark.slow
def test_interrupt_ends_all_builds_and_their_compilers(
    project, tmp_path, wait_for, running_programs
):
    started = tmp_path / "started"
    slow = f'case "$*" in *" -c "*) touch {started}; sleep 60;; esac'
    text = f'#!/bin/sh\n{slow}\nexec {shutil.which("g++")} "$@"\n'
    compiler = program(tmp_path / "bin" / "c++", text)
    process = subprocess.Popen(
        [sys.executable, "-m", "jit_loader", "build"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CXX": str(compiler)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_for(started.exists)
    assert running_programs()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    wait_for(lambda: not running_programs())


@pytest.mark.parametrize("name", ["build", "why", "inspect"])
def test_unknown_op_is_an_error(command, project, monkeypatch, name):
    monkeypatch.chdir(project)
    code, out, err = command(name, "tony")
    assert (code, out) == (1, "")
    assert "there is no op 'tony'" in err
    assert "Traceback" not in err


# why


def test_why_of_an_op_names_every_change(project, run_in, cache, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    why = lambda **environment: run_in(project, "why", "two", **environment)  # noqa: E731
    assert why().stdout.endswith("two: it has never been built\n")
    run_in(project, "build", "two")
    assert why().stdout.endswith("two: in the cache; nothing has changed since it was built\n")
    write(project / "kernels" / "two_cpu.cpp", "long answer() { return 43; }\n")
    write(project / "bindings" / "two.cpp", source_of("two") + "\n")
    wrapper = project / "bindings" / "two.py"
    wrapper.write_text(wrapper.read_text().replace("-DTWO", "-DTHREE"))
    lines = why(CC="gcc").stdout.splitlines()
    assert sorted(lines[-5:]) == [
        "two: C++ flags: -DTHREE was added",
        "two: C++ flags: -DTWO was removed",
        "two: bindings/two.cpp changed",
        "two: environment variables: CC was not set, is gcc",
        "two: kernels/two_cpu.cpp changed",
    ]
    assert len(list(cache.rglob("manifest.json"))) == 1  # `why` builds nothing


@pytest.mark.parametrize("load", ["load", "load_inline"])
def test_why_of_an_extension_names_every_change(load, tiny, command, monkeypatch):
    monkeypatch.chdir(tiny.folder)
    flags = {"extra_include_paths": [str(tiny.folder)], "extra_cflags": ["-DMORE"]}
    if load == "load":
        tiny.load(**flags)
    else:
        jit_loader.load_inline("tiny", [MODULE, OTHER], no_implicit_headers=True, **flags)
    assert "tiny: in the cache; nothing has changed since it" in command("why", "tiny")[1]
    header = tiny.write("value.h", "#define VALUE 2\n")
    shown = header.name if load == "load" else header
    assert command("why", "tiny") == (0, f"tiny: {shown} changed\n", "")


def test_extensions_of_one_name_are_told_apart(tiny, command, monkeypatch, tmp_path, capsys):
    tiny.load()
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    jit_loader.load("tiny", [str(write(tmp_path / "scale.cpp", binding("tiny", value="1")))])
    assert "tiny: first build: " in capsys.readouterr().err
    monkeypatch.chdir(tiny.folder)
    assert "tiny: in the cache" in command("why", "tiny")[1]
    monkeypatch.chdir("/")
    assert "has module.cpp, other.cpp: change to their folder" in command("why", "tiny")[2]


def test_why_of_a_cuda_kernel_is_an_error(command, cache):
    build = Path(cache_folder(), "cuda_kernel.f", "key", "build")
    write(build / "any", "")
    write(build.parent / "lock", "")
    write_checked(build / "manifest.json", {"name": "cuda_kernel.f", "request": {}, "created": 0})
    assert "cuda_kernel.f is a cuda_kernel" in command("why", "cuda_kernel.f")[2]


def test_why_says_which_header_a_source_gets(project, run_in, monkeypatch):
    source = project / "bindings" / "two.cpp"
    source.write_text("#include <torch/extension.h>\n")
    why = lambda: run_in(project, "why", "two", "--verbose").stdout  # noqa: E731
    assert "two: bindings/two.cpp: torch/extension.h lacks the C++ frontend\n" in why()
    source.write_text("#include <torch/extension.h>\ntorch::nn::Linear layer(1, 2);\n")
    expected = "two: bindings/two.cpp: torch/extension.h is complete: it names torch::nn::Linear\n"
    assert expected in why()


def test_build_line_says_that_the_loader_changed(tiny, monkeypatch, capfd):
    tiny.load()
    describe = Request._describe
    monkeypatch.setattr(Request, "_describe", lambda self: {**describe(self), "row": None})
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    shutil.rmtree(os.path.join(cache_folder(), "memos"))
    tiny.load()
    assert "tiny: the loader changed: " in capfd.readouterr().err


# doctor


@pytest.fixture
def doctor(command, tiny):
    """Runs doctor; returns its exit code and {subject: check}."""

    def run():
        machine.this_machine.cache_clear()
        code, out, _ = command("doctor", "--json")
        return code, {check["subject"]: check for check in json.loads(out)}

    return run


@pytest.fixture
def without_nvcc(monkeypatch):
    """Hides nvcc from doctor, whose test build of CUDA code takes 2 s."""
    monkeypatch.setattr(toolchain, "why_no_cuda", lambda: "nvcc was not found; install it")


def test_doctor_accepts_a_cpu_machine(doctor, without_nvcc, command, tiny, cache, monkeypatch):
    monkeypatch.setattr(doctor_command, "gpus", lambda: [])
    shutil.rmtree(cache)
    code, found = doctor()
    assert code == 0
    names = ["Python", "ninja", "PyTorch", "C++ compiler", "CUDA", "GPU", "cache"]
    assert list(found) == [*names, "PyTorch's headers", "compile .cpp"]
    assert {check["level"] for check in found.values()} == {"ok"}
    assert found["CUDA"]["text"] == "nvcc was not found; install it"
    assert "main.cpp" in tiny.compiled()  # doctor has compiled it
    assert json.loads(command("list", "--json")[1]) == []


@pytest.mark.slow
@pytest.mark.nvcc
def test_doctor_finds_nothing_wrong_with_nvcc(doctor):
    _, found = doctor()
    for subject in ("CUDA", "nvcc", "compile .cu"):
        assert found[subject]["level"] == "ok"


def test_doctor_says_what_settings_forbid(doctor, without_nvcc, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "1")
    monkeypatch.delenv("JIT_LOADER_PCH")
    text = doctor()[1]["PyTorch's headers"]["text"]
    assert text.startswith("precompiled for 0 sets of flags; no more are made: MAX_JOBS")
    monkeypatch.setenv("JIT_LOADER_NO_COMPILE", "1")
    assert list(doctor()[1])[-1] == "PyTorch's headers"  # and no build


def test_doctor_names_a_variable_with_an_open_quote(command, monkeypatch):
    monkeypatch.setenv("CXX", 'tool "')
    code, _, err = command("doctor")
    assert code == 1
    assert err.startswith("jit_loader: the environment variable CXX: No closing quotation")


MISSING = {
    "ninja": (lambda patch: patch.setattr(doctor_command, "ninja_path", lambda: None), "pip insta"),
    "PyTorch": (lambda patch: patch.setitem(sys.modules, "torch", None), "pip install torch$"),
    "C\\+\\+ compiler": (lambda patch: patch.setenv("CXX", "no-such-compiler"), "install g"),
}


@pytest.mark.parametrize("subject", MISSING)
def test_doctor_says_what_is_missing_and_how_to_install_it(command, tiny, monkeypatch, subject):
    take_away, fix = MISSING[subject]
    take_away(monkeypatch)
    code, out, _ = command("doctor")
    assert code == 1
    assert re.search(rf"^missing +{subject} +.*Fix: {fix}", out, re.MULTILINE), out


def test_doctor_reports_a_compiler_that_fails(doctor, without_nvcc, tiny):
    tiny.change_compiler("exit 1")
    code, found = doctor()
    assert code == 1
    assert found["C++ compiler"]["level"] == "ok"
    assert found["compile .cpp"]["level"] == "missing"


@pytest.mark.parametrize("path", ["/proc/self/cache", os.devnull, "writable by others"])
def test_doctor_reports_a_cache_that_cannot_be_used(doctor, without_nvcc, monkeypatch, tiny, path):
    if path == "writable by others":
        tiny.load()
        os.chmod(cache_folder(), 0o777)
    else:
        monkeypatch.setenv("JIT_LOADER_CACHE", path)
    code, found = doctor()
    assert code == 1
    assert found["cache"]["level"] == "missing"
    assert "name another folder in JIT_LOADER_CACHE" in found["cache"]["fix"]


@pytest.mark.slow
def test_doctor_names_the_architectures_of_the_gpus(doctor, monkeypatch):
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    monkeypatch.setattr(doctor_command, "gpus", lambda: ["nvidia0", "nvidia1"])
    monkeypatch.setattr(machine, "gpu_architectures", lambda: ["9.0"])
    _, found = doctor()
    text = "2 GPUs; CUDA code is compiled for 9.0"
    assert (found["GPU"]["level"], found["GPU"]["text"]) == ("ok", text)
    monkeypatch.setattr(machine, "gpu_architectures", list)
    code, found = doctor()
    assert code == 0
    assert found["GPU"]["level"] == "problem"
    assert found["GPU"]["text"].startswith("2 GPUs; CUDA code is compiled for 8.0: the driver")
    assert "set TORCH_CUDA_ARCH_LIST" in found["GPU"]["fix"]


@pytest.mark.slow
@pytest.mark.nvcc
def test_doctor_names_the_headers_and_libraries_that_cuda_lacks(doctor, monkeypatch):
    monkeypatch.setattr(toolchain, "NEEDED_HEADERS", ("cuda_runtime.h", "no_such_header.h"))
    libraries = {"cudart": "libcudart.so"}
    monkeypatch.setattr(toolchain, "find_cuda_library", lambda home, name: libraries.get(name))
    _, found = doctor()
    assert found["CUDA"]["level"] == "problem"
    assert found["CUDA"]["text"].endswith("have no_such_header.h, libcublas")


# Quantities


def test_sizes_and_ages_are_parsed_and_formatted():
    sizes, ages = ("0", "20GB", "1.5 GiB", "5m"), ("90s", "12h", "30d", "2 w")
    assert [*map(parse_size, sizes)] == [0, 20 * 10**9, 1610612736, 5 * 10**6]
    assert [*map(parse_age, ages)] == [90, 43200, 2592000, 1209600]
    assert [*map(format_size, (0, 999, 12_345, 999_900))] == ["0 B", "999 B", "12.3 kB", "1 MB"]
    assert [*map(format_age, (5, 300, 7200, 10 * 86400))] == ["5 s", "5 min", "2 h", "10 d"]


def test_run_replaces_pytorchs_load_in_a_program(tiny, run_in, tmp_path):
    program = tiny.write(
        "program.py",
        "import sys\nfrom torch.utils.cpp_extension import load\n"
        "import beside\n"
        f"module = load(name='tiny', sources={tiny.sources!r})\n"
        "print(__name__, sys.argv[1:], module.value(), module.__file__)\nsys.exit(3)\n",
    )
    tiny.write("beside.py", "")
    for command in ([str(program)], ["-m", "program"]):
        result = run_in(tiny.folder, "run", *command, "--flag", "-m", "word")
        assert result.returncode == 3, result.stderr
        assert result.stdout.startswith("__main__ ['--flag', '-m', 'word'] 101 ")
        assert str(tmp_path / "cache") in result.stdout
