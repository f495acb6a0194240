"""Writes the files of a new op, which works and passes its tests, for you to change.

An elementwise op has a result for each element (the template computes x * x), a binary op one for
each pair of elements, broadcast (a * b), and a reduction one for all elements (the sum of x * x). A
rowwise op has a result for each element that depends on its row, the last dimension (a softmax). A
blank op is any kernel; its template has a thread for each element.

The files are written into the current folder's project. If there is none, the current folder
becomes a project: kernels/ and bindings/ are made, with the helpers that ops share. Existing files
are never changed. A name that C++ or PyTorch uses for something else, such as double or half, gives
an error when the op is compiled: choose another.
"""

import keyword
import os
import re
from pathlib import Path

# In the text and the path of a template, NAME is the op's name and Name that of its formula.
KINDS = ("elementwise", "binary", "reduction", "rowwise", "blank")
# The text of EXPRESSION in the templates of shared/: how PyTorch computes the result.
EXPRESSIONS = {
    "elementwise": "x * x",
    "reduction": "torch.linalg.vector_norm(x, dtype=torch.float64).square().to(x.dtype)",
    "rowwise": "torch.softmax(x, -1)",
    "blank": "1 * x",
}
TEMPLATES = Path(__file__).absolute().parent / "templates"

# The files that ops share, which a project gets with its first op.
HELPERS = "kernels/shared/*.*", "bindings/shared/*.*", "bindings/autograd.*"
HELPERS += "bindings/__init__.py", ".clangd"
TAKEN = {"shared", "autograd", "torch", *keyword.kwlist}


def add_arguments(parser):
    parser.add_argument("name", metavar="NAME", help="lower-case letters, digits and '_'")
    parser.add_argument("--like", choices=KINDS, default=KINDS[0], help="default: elementwise")


def run(options):
    from _jit_loader.ops.project import current_project

    try:
        project = Path(current_project())
    except FileNotFoundError:
        project = Path.cwd()
    files, helpers = write_op(options.name, options.like, project)
    if helpers:
        print(f"new, shared by all ops: {', '.join(helpers)}")
    for path in sorted(files):
        print(f"new: {os.path.relpath(project / path)}")
    name = options.name
    print(f"change kernels/{name}*, and the gradient in bindings/{name}.py")
    print(f"use it: from bindings.{name} import {name}\ntest it: python -m pytest -k {name}")
    print(f"measure it: python examples/run_{name}.py")
    return 0


def write_op(name, kind, project):
    """Writes the files of a new op into a project, and the helpers that the project lacks.

    Returns the paths of the op's files, and of the helpers that the project lacked.

    Raises:
        ValueError: the name cannot be the name of an op.
        FileExistsError: the project has one of the op's files.
    """
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or name in TAKEN:
        raise ValueError(
            f"{name!r} cannot be the name of an op: use lower-case letters, digits and '_', begin "
            "with a letter, and take no word of Python, and none of shared, autograd and torch"
        )
    formula = "".join(part.capitalize() for part in name.split("_"))  # LeakyRelu for leaky_relu
    files = {  # clang-format may wrap lines that have a long name
        path.replace("NAME", name): text.replace("NAME", name).replace("Name", formula)
        for path, text in template_files(kind).items()
    }
    if taken := [path for path in files if os.path.lexists(project / path)]:
        raise FileExistsError(
            f"{name!r} cannot be the name of a new op: {project} has {', '.join(taken)}. "
            "Choose another name, or delete the op's files"
        )
    helpers = helper_files()
    missing = {path: text for path, text in helpers.items() if not os.path.lexists(project / path)}
    for path, text in {**missing, **files}.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)
    return [*files], [*missing]


def template_files(kind):
    """Returns {path: text} of a kind's templates; the paths are relative to the project.

    They are the files of the kind's folder, and those of shared/ that its folder does not replace.
    """
    files = {}
    for folder in (TEMPLATES / "shared", TEMPLATES / kind):
        paths = (path for path in sorted(folder.rglob("*")) if path.suffix != ".pyc")
        files |= {str(p.relative_to(folder)): p.read_text() for p in paths if p.is_file()}
    expression = EXPRESSIONS.get(kind, "")
    return {path: text.replace("EXPRESSION", expression) for path, text in files.items()}


def helper_files():
    """Returns {path: text} of the files that ops share.

    setup.py copies them next to templates/. In a checkout they are in its root.
    """
    installed = TEMPLATES.parent / "helpers"
    root = installed if installed.is_dir() else TEMPLATES.parents[2]
    paths = sorted(path for pattern in HELPERS for path in root.glob(pattern))
    return {str(path.relative_to(root)): path.read_text() for path in paths}
