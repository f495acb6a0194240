"""`python -m jit_loader check` shows the log of compute-sanitizer with the lines of sources.

The logs in compute_sanitizer/ were written by compute-sanitizer 2025.3.1 on an H200. Each is cut
after its first records.
"""

import os
import sys
from pathlib import Path

import pytest

from _jit_loader.commands import check as check_command
from _jit_loader.commands import main
from tests.support.extension import program
from tests.support.poke import FAR, LINE_OF_THE_FAULT, write_project

LOGS = Path(__file__).parent / "compute_sanitizer"
CHECK = ("-m", "jit_loader", "check", "script.py")
# A fake compute-sanitizer that copies the file $LOG to its log.
FAKE = """\
#!/bin/sh
echo "$@" > "$(dirname "$0")/arguments"
while [ "$1" != -- ] && [ "$1" != {python} ]; do
  if [ "$1" = --log-file ]; then cp "$LOG" "$2"; fi
  shift
done
exec "$@"
"""
RAW_KERNEL = """\
import torch
import jit_loader

poke = jit_loader.cuda_kernel(
    '''
extern "C" __global__ void poke(float* y, long i) {
  y[i] = 1;
}
''',
    "poke",
)
poke[1, 1](torch.zeros(1024, device="cuda"), 1024)
torch.cuda.synchronize()
"""
PROGRAM = """\
import os, sys
print(sys.argv[1:], os.environ["NVCC_APPEND_FLAGS"])
print(os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"))
sys.exit(3)
"""


@pytest.fixture
def check(tmp_path, monkeypatch, capfd):
    """check("misaligned", "--tool", "racecheck") returns exit code, stdout, stderr, arguments."""
    folder = tmp_path / "toolkit" / "bin"
    program(folder / "compute-sanitizer", FAKE.format(python=sys.executable))
    monkeypatch.setenv("CUDA_HOME", str(folder.parent))
    monkeypatch.delenv("PYTORCH_NVCC", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "program.py").write_text(PROGRAM)

    def run(log, *options):
        text = (LOGS / f"{log}.log").read_text().replace("/project/", f"{tmp_path}/")
        (tmp_path / "log").write_text(text)
        monkeypatch.setenv("LOG", str(tmp_path / "log"))
        code = main(["check", *options, str(tmp_path / "program.py"), "--epochs", "1"])
        captured = capfd.readouterr()
        return code, captured.out, captured.err, (folder / "arguments").read_text()

    return run


LINES = {
    **{"write_past_the_end": 5, "misaligned": 24, "shared_memory": 26},
    **{"initcheck": 18, "synccheck": 20, "racecheck": 15},
}


@pytest.mark.parametrize(("name", "line"), LINES.items())
def test_a_fault_gives_exit_code_1_and_the_log_with_lines_of_sources(check, tmp_path, name, line):
    (tmp_path / "faults.cu").write_text("\n" * (line - 1) + "  the_line_at_fault();\n")
    (tmp_path / "go.py").write_text("\n" * 12 + "fault(0)\n")
    code, out, err, arguments = check(name)
    assert code == 1
    assert out == "['--epochs', '1'] -lineinfo\n1\n", "stdout has only the output of the program"
    assert "--tool memcheck" in arguments
    assert not list(tmp_path.glob("compute-sanitizer-*"))
    lines = err.splitlines()
    at = lines.index(f"  {line} |   the_line_at_fault();")
    assert f"{tmp_path}/faults.cu:{line}" in lines[at - 1]
    assert not any("[0x" in line or line.endswith(".so") for line in lines), "frames of libraries"
    if name == "write_past_the_end":
        at = lines.index(f"=========         Host Frame: <module> in {tmp_path}/go.py:13")
        assert lines[at + 1] == "  13 | fault(0)"


def test_without_a_fault_the_exit_code_is_the_programs(check, tmp_path, monkeypatch):
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-DMINE")
    code, out, err, arguments = check("no_fault", "--tool", "racecheck", "--caching-allocator")
    assert code == 3
    assert out == "['--epochs', '1'] -DMINE -lineinfo\nNone\n"
    assert "SUMMARY: 0 " in err
    assert "--tool racecheck" in arguments


def test_a_program_that_was_not_checked_does_not_pass(check, tmp_path):
    (tmp_path / "program.py").write_text("")
    code, _, err, _ = check("no_gpu")
    assert code == 1
    assert "was not checked: it did not use a GPU" in err


def test_a_sanitizer_that_fails_does_not_pass():
    log = "========= COMPUTE-SANITIZER\n========= Error: Device not supported.\n"
    assert "compute-sanitizer did not end normally" in check_command.why_not_checked(log)


def test_without_compute_sanitizer_the_error_has_install_advice(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PYTORCH_NVCC", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    if os.path.exists("/usr/local/cuda/bin/compute-sanitizer"):
        pytest.skip("compute-sanitizer in /usr/local/cuda is always found")
    assert main(["check", __file__]) == 1
    assert "compute-sanitizer was not found; install the CUDA Toolkit" in capfd.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize("element", ["1024", str(FAR)], ids=["next", "far"])
def test_a_write_past_the_end_of_a_tensor_is_found(tmp_path, python, element):
    settings = {"cwd": write_project(tmp_path / "project"), "JIT_LOADER_CACHE": str(tmp_path)}
    finished = python(*CHECK, element, **settings)
    assert finished.returncode == 1, finished.stderr
    assert "Invalid __global__ write of size 4 bytes" in finished.stderr
    assert f"kernels/poke.cu:{LINE_OF_THE_FAULT}" in finished.stderr
    assert f"  {LINE_OF_THE_FAULT} |   y[i] = T{{}};" in finished.stderr
    assert "script.py:8" in finished.stderr
    fine = python(*CHECK, "1023", **settings)
    assert fine.returncode == 0, fine.stderr
    assert "ERROR SUMMARY: 0 errors" in fine.stderr


@pytest.mark.gpu
def test_the_line_of_a_kernel_in_a_text_is_shown(tmp_path, python):
    (tmp_path / "script.py").write_text(RAW_KERNEL)
    finished = python(*CHECK, cwd=tmp_path, JIT_LOADER_CACHE=str(tmp_path))
    assert finished.returncode == 1, finished.stderr
    assert "source.cu:3" in finished.stderr
    assert "  3 |   y[i] = 1;" in finished.stderr
