"""Follows a page as a reader would: writes its files, and runs its commands in their order."""

import doctest
import re
import shlex

FILE = re.compile(r"(?://|#) ([\w./]+\.(?:h|cu|cpp|py))\n")  # the first line of a file's block
# PyTorch prints it on a machine with nvcc but no GPU, on import of torch.utils.cpp_extension.
PYTORCHS_WARNING = re.compile(
    r"^W\d{4} .*cpp_extension.*No CUDA runtime is found.*\n", re.MULTILINE
)
SECONDS = re.compile(r"\d+(?:\.\d+)?(?= ?[mu]?s\b)")  # times differ from run to run


def follow(page, folder, python):
    """Runs the page without nvcc and GPU, and compares what the commands print with the page."""
    said = None
    for language, text, heading in page.blocks:
        if language == "console":
            assert said is None or said.startswith("new: "), f"{heading}: the page lacks {said}"
            said = "".join(_run(python, line, folder) for line in text.splitlines())
        elif language == "text":
            _check_output(text, said)
            said = None
        elif FILE.match(text):
            write(folder, text)


def write(folder, text):
    path = folder / FILE.match(text)[1]
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def _run(python, line, folder):
    program, *arguments = shlex.split(line)
    assert program == "python"
    without_cuda = {"CUDA_HOME": str(folder / "no-cuda"), "CUDA_VISIBLE_DEVICES": ""}
    finished = python(*arguments, cwd=folder, check=True, JIT_LOADER_QUIET="0", **without_cuda)
    return PYTORCHS_WARNING.sub("", finished.stderr) + finished.stdout


def _check_output(expected, said):
    """Compares an output with the page, in which '...' stands for any text."""
    expected, said = (SECONDS.sub("0", text) for text in (expected, said))
    # A very short compilation has no expected time.
    expected, said = (text.replace(", about 0 s", "") for text in (expected, said))
    agrees = doctest.OutputChecker().check_output(expected, said, doctest.ELLIPSIS)
    assert agrees, f"the page shows\n{expected}\nand the command printed\n{said}"
