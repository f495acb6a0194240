"""Follows a page as a reader would: writes its files, and runs its commands in their order."""

import doctest
import re
import shlex

FILE = re.compile(r"(?://|#) ([\w./]+\.(?:h|cu|cpp|py))\n")  # the first line of a file's block
# PyTorch prints it on a machine with nvcc but no GPU, on import of torch.utils.cpp_extension.
PYTORCHS_WARNING = re.compile(
    r"^W\d{4} .*cpp_extension.*No CUDA runtime is found.*\n", re.MULTILINE
)
PROGRESS = re.compile(r"^\w+: \d+ of \d+ compiled, \d+ s\n", re.MULTILINE)  # of a slow build
CUDA_OBJECT = re.compile(r", \w+\.cuda\.o\b")
SECONDS = re.compile(r"\d+(?:\.\d+)?(?= ?[mu]?s\b)")  # times differ from run to run


def follow(page, folder, python, nvcc=None):
    """Runs the page without a GPU, and compares what the commands print with the page.

    nvcc: its path; without nvcc the commands print no name of an object of CUDA code.
    """
    said = None
    for language, text, heading in page.blocks:
        if language == "console":
            assert said is None or said.startswith("new: "), f"{heading}: not shown: {said}"
            said = "".join(_run(python, line, folder, nvcc) for line in text.splitlines())
        elif language == "text":
            check_output(text if nvcc else CUDA_OBJECT.sub("", text), said)
            said = None
        else:
            put(folder, language, text)


def put(folder, language, text):
    """Writes or changes the file that a block names; code without a name must be in some file."""
    if FILE.match(text):
        (_change if language == "diff" else write)(folder, text)
    elif language in ("cpp", "python"):
        files = [path.read_text() for path in folder.glob("*/*.*") if path.suffix != ".so"]
        assert any(text in file for file in files), f"no file has this excerpt:\n{text}"


def write(folder, text):
    path = folder / FILE.match(text)[1]
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def _change(folder, text):
    """Applies the - and + lines below a file's name, which stand for one place of the file."""
    path = folder / FILE.match(text)[1]
    lines = text.splitlines(keepends=True)[1:]
    old, new = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
    before = path.read_text()
    assert before.count(old) == 1, f"{path} has this {before.count(old)} times, not once:\n{old}"
    path.write_text(before.replace(old, new))


def _run(python, line, folder, nvcc):
    program, *arguments = shlex.split(line)
    assert program == "python"
    variables = {"PYTORCH_NVCC": nvcc or str(folder / "no-nvcc"), "CUDA_VISIBLE_DEVICES": ""}
    finished = python(*arguments, cwd=folder, check=True, JIT_LOADER_QUIET="0", **variables)
    return PROGRESS.sub("", PYTORCHS_WARNING.sub("", finished.stderr)) + finished.stdout


def check_output(expected, said):
    """Compares an output with the page, in which '...' stands for any text."""
    expected, said = (SECONDS.sub("0", text) for text in (expected, said))
    agrees = doctest.OutputChecker().check_output(expected, said, doctest.ELLIPSIS)
    assert agrees, f"the page shows\n{expected}\nand the command printed\n{said}"
