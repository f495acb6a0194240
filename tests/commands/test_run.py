"""run replaces PyTorch's load in a program, and in the Python processes that it starts."""

import os
import subprocess
import sys
import textwrap

import pytest

import jit_loader
from _jit_loader.commands.in_children import sitecustomize

# Prints how each process was started, and from where it loaded its module.
LOAD = """
import sys
def load(how):
    from torch.utils.cpp_extension import load
    module = load("tiny", {sources!r})
    print(how, module.value(), load.__module__, module.__file__, flush=True)
"""
# Its arguments say how to start processes.
PROGRAM = """
import multiprocessing, subprocess, sys
from loading import load
def start(how):
    if how == "child of a child":
        code = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'child'], check=True)"
        return subprocess.Popen([sys.executable, "-c", code]).wait
    process = multiprocessing.get_context(how).Process(target=load, args=[how])
    process.start()
    return process.join
if __name__ == "__main__":
    load("program")
    for wait in [start(how) for how in sys.argv[1:]]:
        wait()
"""


@pytest.fixture
def program(tiny, tmp_path, python):
    """Returns program(hows), which returns PROGRAM's output: {how: rest of a line}."""
    tiny.write("loading.py", LOAD.format(sources=tiny.sources))
    tiny.write("child.py", "import loading; loading.load('child')")
    path = tiny.write("program.py", PROGRAM)
    tiny.load()

    def run(hows):
        finished = python(
            *("-m", "jit_loader", "run", path, *hows),
            cwd=tiny.folder,
            check=True,
            TORCH_EXTENSIONS_DIR=str(tmp_path / "theirs"),
        )
        return dict(line.split(maxsplit=1) for line in finished.stdout.splitlines())

    return run


@pytest.mark.slow
@pytest.mark.parametrize("hows", [("spawn", "child of a child"), ("forkserver", "fork")])
def test_processes_of_the_program_have_the_replaced_load_too(program, tmp_path, hows):
    lines = program(hows)
    assert len(lines) == 1 + len(hows)
    assert set(lines.values()) == {lines["program"]}
    assert lines["program"].startswith(f"101 _jit_loader.torch_api {tmp_path}/cache/")
    assert not (tmp_path / "theirs").exists()


@pytest.fixture
def start(tmp_path):
    """start(script, {folder: text of its sitecustomize.py}) runs a script as a child of `run`."""

    def run(script, sitecustomizes, **environment):
        folders = [sitecustomize.FOLDER]
        for name, text in sitecustomizes.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "sitecustomize.py").write_text(text)
            folders.append(str(tmp_path / name))
        variables = {"PYTHONPATH": os.pathsep.join(folders), sitecustomize.VARIABLE: sys.prefix}
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            env={**os.environ, **variables, **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    return run


FINDER = "[type(finder).__name__ for finder in sys.meta_path].count('InstallingFinder')"


def test_child_has_a_finder_and_nothing_more(start):
    finished = start(
        f"""
        import importlib.util, sys
        print({FINDER}, "in_children" in str(sys.modules.get("sitecustomize")))
        print([name for name in ("torch", "jit_loader", "_jit_loader") if name in sys.modules])
        print([folder for folder in sys.path if "in_children" in folder])
        print(importlib.util.find_spec("jit_loader").origin)
        """,
        {},
    )
    *lines, origin = finished.stdout.splitlines()
    assert lines == ["1 False", "[]", str([sitecustomize.FOLDER])]
    assert origin == jit_loader.__file__


def test_child_that_gets_sys_path_as_its_pythonpath_has_a_finder_too(start, tiny, python):
    code = f"import sys; print({FINDER})"
    script = f"""
        import os, subprocess, sys
        environment = {{**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}}
        subprocess.run([sys.executable, "-c", {code!r}], env=environment, check=True)
    """
    assert start(script, {}).stdout == "1\n"
    program = tiny.write("program.py", textwrap.dedent(script))
    assert python("-m", "jit_loader", "run", program, check=True).stdout == "1\n"


def test_sitecustomize_of_the_environment_is_executed(start):
    text = "import sys\nprint('own', __name__, sys.modules[__name__].__file__)\nvalue = 7\n"
    script = f"import sys, sitecustomize; print(sitecustomize.value, {FINDER})"
    finished = start(script, {"first": text, "second": "print('second')"})
    own, value = finished.stdout.splitlines()
    assert own.startswith("own sitecustomize ")
    assert own.endswith("first/sitecustomize.py")
    assert value == "7 1"


def test_python_of_another_environment_is_left_alone(start):
    environment = {sitecustomize.VARIABLE: "/another"}
    assert start(f"import sys; print({FINDER})", {}, **environment).stdout == "0\n"


def test_torch_is_not_imported_before_the_program_imports_it(tmp_path):
    """For example, OMP_NUM_THREADS has an effect only if it is set before that."""
    program = tmp_path / "program.py"
    program.write_text("import sys; print('torch' in sys.modules)")
    finished = subprocess.run(
        [sys.executable, "-m", "jit_loader", "run", str(program)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout == "False\n"
