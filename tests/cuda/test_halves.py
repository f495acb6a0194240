"""nvcc's two halves, run at the same time, give nvcc's object and errors, and all its inputs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import jit_loader
from _jit_loader.build.inputs.compilers import read_depfile
from _jit_loader.cuda import halves
from _jit_loader.key import toolchain
from _jit_loader.live.host_code import host_digest
from tests.support.extension import program

pytestmark = pytest.mark.nvcc

SOURCE = """\
#include "size.h"
#ifdef __CUDA_ARCH__
#include "device.h"
#endif
static __device__ int counter;
namespace {
template <class T> __global__ void scale(T* x) { if (x) x[threadIdx.x] *= SIZE + counter; }
}
extern "C" long other(void) {
  scale<<<1, 32>>>((float*)nullptr);
  scale<<<1, 32>>>((double*)nullptr);
  return SIZE;
}
"""
FLAGS = ["-MD", "-MF", "k.o.d", "-Xptxas=-v", "-gencode=arch=compute_80,code=sm_80"]
VARIES = re.compile(r"Compile time = .*|_ZN\d+_GLOBAL__N_\w+?(?=5scale)|\S*(?=k\.ptx)")
HALVES = [sys.executable, *halves.COMMAND]
IN_TURN = [*HALVES, halves.IN_TURN]


@pytest.fixture
def compiled(tmp_path):
    """Returns a function that compiles k.cu: (exit code, output, symbols, files that were read).

    bin/calls has a line with the arguments of each call of nvcc.
    """
    calls = tmp_path / "bin" / "calls"
    text = f'#!/bin/sh\necho "$@" >> {calls}\nexec {toolchain.nvcc_path()} "$@"\n'
    nvcc = program(tmp_path / "bin" / "nvcc", text)
    (tmp_path / "size.h").write_text("#define SIZE 7\n")
    (tmp_path / "device.h").write_text("// of the GPU's half alone\n")

    def compile(command, text, *flags):
        (tmp_path / "k.cu").write_text(text)
        arguments = [nvcc, *FLAGS, *flags, "-c", "k.cu", "-o", "k.o"]
        done = subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True)
        said = VARIES.sub("", done.stdout + done.stderr)
        if done.returncode != 0:
            return done.returncode, said, None, None
        names = subprocess.run(["nm", "k.o"], cwd=tmp_path, capture_output=True, text=True).stdout
        kinds = sorted(line.split()[-2] for line in names.splitlines())
        files = read_depfile(str(tmp_path / "k.o.d"), str(tmp_path))
        left = {path.name for path in tmp_path.iterdir() if path.is_file()}
        assert left == {"k.cu", "k.o", "k.o.d", "size.h", "device.h"}
        return 0, said, kinds, set(map(os.path.realpath, files))

    return compile


def test_result_is_that_of_nvcc(compiled, tmp_path):
    flags = ["-gencode=arch=compute_90,code=sm_90"]
    ours = compiled(HALVES, SOURCE, *flags)
    assert ours[0] == 0
    assert ours[1].count("Used ") == 4, "two kernels, two architectures"
    theirs = compiled([], SOURCE, *flags)
    assert ours[:3] == theirs[:3]
    assert ours[3] >= theirs[3]
    assert str(tmp_path / "device.h") in ours[3]


def test_nvcc_may_have_several_threads(compiled):
    code, said, *_ = compiled(HALVES, SOURCE, "--threads=2")
    assert (code, said.count("Used "), "'threads'" in said) == (0, 2, False)


@pytest.mark.slow
def test_host_code_is_equal_whether_the_halves_run_at_the_same_time_or_not(compiled, tmp_path):
    def digest(command, text):
        assert compiled(command, text)[0] == 0
        return host_digest(tmp_path / "k.o")

    # Without a function that other files see, nvcc's own id has the number of a process.
    text = SOURCE.replace('extern "C"', "__attribute__((used)) static")
    assert digest(HALVES, text) == digest(IN_TURN, text)
    assert digest(IN_TURN, text) != digest(IN_TURN, text.replace("<<<1, 32>>>", "<<<2, 32>>>"))
    with pytest.raises(ValueError, match="differ in each compilation"):
        digest([], text)


@pytest.mark.slow
def test_host_compiler_may_have_any_name(compiled, tmp_path):
    compiler = tmp_path / "with a space" / "x86_64-conda-linux-gnu-c++"
    compiler.parent.mkdir()
    compiler.symlink_to(shutil.which("g++"))
    ours = compiled(HALVES, SOURCE, f"-ccbin={compiler}")
    (call,) = (tmp_path / "bin" / "calls").read_text().splitlines()
    assert "--dryrun" in call
    assert ours == compiled([], SOURCE, f"-ccbin={compiler}")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("*= SIZE", '*= SIZE; asm("nonsense");'),
        pytest.param("SIZE + counter", "undeclared", marks=pytest.mark.slow),
        pytest.param('"size.h"', '"no.h"', marks=pytest.mark.slow),
    ],
)
def test_errors_are_those_of_nvcc(compiled, before, after):
    text = SOURCE.replace(before, after)
    theirs = compiled([], text)
    for command in ([*HALVES, "--nice=5"], IN_TURN):
        ours = compiled(command, text)
        assert ours[0] != 0
        assert sorted(ours[1].splitlines()) == sorted(theirs[1].splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["-rdc=true", "-ptx", "--no-such-flag"])
def test_other_compilations_are_left_to_nvcc(compiled, flag):
    assert compiled([*HALVES, "--nice=5"], SOURCE, flag) == compiled([], SOURCE, flag)


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "at_once"), [("2", True), ("1", False)])
def test_builds_run_the_halves_at_the_same_time_if_a_job_is_free(tiny, monkeypatch, jobs, at_once):
    monkeypatch.setenv("MAX_JOBS", jobs)
    tiny.write("device.h", "")
    source = tiny.write("k.cu", SOURCE.replace('#include "size.h"', "#define SIZE 7"))
    sources = [tiny.sources[0], source]
    assert jit_loader.load("tiny", sources).value() == 8
    tiny.write("device.h", "#error broken")
    message = r"tiny: device\.h:1: error: .*broken"
    with pytest.raises(jit_loader.CompileError, match=message) as raised:
        jit_loader.load("tiny", sources)
    log = re.search("full compiler output: (.*)", str(raised.value))[1]
    rules = Path(log).with_name("build.ninja").read_text()
    assert os.path.basename(halves.__file__) in rules
    assert (halves.IN_TURN not in rules) == at_once
