"""Makes a new op from the files of its kind in templates/ and the helpers that they include.

In the text and the path of a template, NAME is the op's name and Name that of its formula.
"""

import contextlib
import keyword
import os
import re
from pathlib import Path

KINDS = {
    "elementwise": "one result for each element; the template computes x * x",
    "binary": "one result for each pair of elements, broadcast; the template computes a * b",
    "reduction": "one result for all elements; the template computes the sum of x * x",
    "blank": "any kernel; the template has a thread for each element",
}
# {placeholder of the templates in shared/: its text} for the kinds that take one tensor: the result
# in words, and the expression by which PyTorch computes it (numpy too, if the kind has no case file
# in its own folder). The placeholders are about as long as the texts, which keeps lines formatted.
RESULTS = {
    "elementwise": {"RESULT_OF_X": "Square of x", "EXPRESSION": "x * x"},
    "reduction": {
        "RESULT_OF_X": "The sum of x * x",
        "EXPRESSION": "torch.linalg.vector_norm(x, dtype=torch.float64).square().to(x.dtype)",
    },
    "blank": {"RESULT_OF_X": "A copy of x", "EXPRESSION": "1 * x"},
}
TEMPLATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")

# Every op needs these files, but no #include or import in its own files names them.
ALWAYS_NEEDED = (
    "bindings/__init__.py",
    "bindings/autograd.cpp",
    "bindings/autograd.py",
    "bindings/shared/__init__.py",
)
INCLUDE = re.compile(r'^#include "((?:kernels|bindings)/[\w./]+)"', re.MULTILINE)
# Wrappers and helpers import only helpers, which are in bindings/shared/.
IMPORT = re.compile(r"^ *from \.(?:shared\.)?(\w+) import", re.MULTILINE)

NOT_CODE = re.compile(r'"""[^"]*"""|"(?:[^"\\\n]|\\.)*"|//.*|#.*')
# A name, but not an attribute and not a keyword argument.
WORD = re.compile(r"(?<![.\w])\w+(?!\w|=[^=])")
TYPE = re.compile(r"^(?:struct|class|using) (\w+)", re.MULTILINE)


class NewOp:
    """A new op and the files that it adds to a project; write() writes them.

    Attributes:
        project: the folder that contains kernels/ and bindings/, or will contain them.
        files: {path: text} of the op's own files.
        helpers: {path: text} of the helpers that the project lacks.
        other_helpers: paths of helpers of which the project has another version, which is kept.

    Raises:
        ValueError: the name cannot be the name of an op.
        FileExistsError: the project has one of the op's files.
    """

    def __init__(self, name, kind, project):
        check_name(name)
        self.name, self.project = name, project
        templates = template_files(kind)
        self.files = {
            path.replace("NAME", name): rendered(text, name)
            for path, text in templates.items()
            if self._suits(path)
        }
        self._check_free()
        needed = needed_helpers(templates.values())
        self.helpers = {path: text for path, text in needed.items() if not self._has(path)}
        self.other_helpers = [
            path
            for path, text in needed.items()
            if path not in self.helpers and Path(self._path(path)).read_text() != text
        ]

    def write(self):
        """Writes all files, or none if one of them cannot be written."""
        written = []
        try:
            for path, text in {**self.helpers, **self.files}.items():
                os.makedirs(os.path.dirname(self._path(path)), exist_ok=True)
                with open(self._path(path), "x") as file:
                    written.append(file.name)
                    file.write(text)
        except BaseException:
            for path in written:
                with contextlib.suppress(OSError):
                    os.unlink(path)
            raise

    def _path(self, path):
        return os.path.join(self.project, path)

    def _has(self, path):
        return os.path.lexists(self._path(path))

    def _suits(self, template):
        """Returns whether the project uses the file of a template.

        A project with tests/bindings/case.py has a case file for each op; others get a test file
        that needs no other file.
        """
        tests_all = self._has("tests/bindings/case.py")
        return {
            "tests/bindings/cases/NAME.py": tests_all,
            "tests/test_NAME.py": not tests_all,
            "examples/run_NAME.py": self._has("examples/compare.py"),
        }.get(template, True)

    def _check_free(self):
        """Raises a FileExistsError if the project or the helpers have one of the op's files."""
        helpers = helpers_of_all_kinds()
        taken = [path for path in self.files if path in helpers or self._has(path)]
        modules = {*helpers, *(f"bindings/{name}" for name in _names_in(self._path("bindings")))}
        taken += [path for path in modules if re.match(rf"bindings/{self.name}[./]", path)]
        if taken:
            raise FileExistsError(
                f"{self.name!r} cannot be the name of a new op in {self.project}: it conflicts "
                f"with {', '.join(sorted(set(taken)))}"
            )


def check_name(name):
    """Raises a ValueError that says why a name cannot be the name of an op."""
    why = None
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        why = "use lower-case letters, digits and '_', and begin with a letter"
        parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
        plain = re.sub(r"\W+", "_", parts, flags=re.ASCII).strip("_").lower()
        if re.fullmatch("[a-z][a-z0-9_]*", plain):
            why += f", such as {plain!r}"
    elif keyword.iskeyword(name):
        why = "it is a keyword of Python"
    elif _is_word_of_cpp(name):
        why = "it is a keyword or a standard name of C++"
    elif {name, formula_name(name)} & (_words_of_templates() | _types_of_helpers()):
        why = "the op's files use that name for something else"
    if why is not None:
        raise ValueError(f"{name!r} cannot be the name of an op: {why}")


def formula_name(name):
    """Returns the name of an op's formula: 'LeakyRelu' for 'leaky_relu'."""
    return "".join(part.capitalize() for part in name.split("_"))


def rendered(text, name):
    """Returns a template's text for an op, formatted as clang-format would."""
    text = text.replace("NAME", name).replace("Name", formula_name(name))
    includes = r'(?:#include "kernels/.*\n)+'
    text = re.sub(includes, lambda match: "".join(sorted(match[0].splitlines(True))), text)
    text = re.sub(r"^void .{96,}$", lambda match: _wrapped(match[0]), text, flags=re.MULTILINE)
    return re.sub(r"^(#define \w+\(T\)) (?=.{78})", r"\1 \\\n  ", text, flags=re.MULTILINE)


def _wrapped(declaration):
    """Returns the declaration of a function on two lines of at most 100 columns."""
    end = declaration.rindex(",", 0, 100) + 1
    indent = " " * (declaration.index("(") + 1)
    return f"{declaration[:end]}\n{indent}{declaration[end + 1 :]}"


def template_files(kind):
    """Returns {path: text} of a kind's templates; the paths are relative to the project.

    They are the files of the kind's folder, and those of shared/ that its folder does not replace.
    """
    files = {**_files_below("shared"), **_files_below(kind)}
    for word, text in RESULTS.get(kind, {}).items():
        files = {path: content.replace(word, text) for path, content in files.items()}
    return files


def _files_below(name):
    folder = os.path.join(TEMPLATES, name)
    return {
        os.path.relpath(os.path.join(parent, name), folder): Path(parent, name).read_text()
        for parent, _, names in sorted(os.walk(folder))
        for name in sorted(names)
        if not name.endswith(".pyc")
    }


def needed_helpers(texts):
    """Returns {path: text} of the helpers that texts include or import, directly or indirectly."""
    found, missing = {}, [*ALWAYS_NEEDED, *_needed_paths(texts)]
    while missing:
        path = missing.pop()
        if path not in found and "NAME" not in path:
            found[path] = Path(_helper_folder(), path).read_text()
            missing += _needed_paths([found[path]])
    return dict(sorted(found.items()))


def helpers_of_all_kinds():
    """Returns {path: text} of the helpers that ops of any kind need."""
    return needed_helpers(_texts_of_templates())


def _helper_folder():
    """Returns the folder that holds kernels/ and bindings/ with the helpers.

    setup.py copies them beside templates/. In a checkout they are in its root.
    """
    commands = os.path.dirname(TEMPLATES)
    installed = os.path.join(commands, "helpers")
    return installed if os.path.isdir(installed) else os.path.dirname(os.path.dirname(commands))


def _needed_paths(texts):
    """Yields the paths of the helpers that texts include or import."""
    for text in texts:
        yield from INCLUDE.findall(text)
        yield from (f"bindings/shared/{name}.py" for name in IMPORT.findall(text))


def _texts_of_templates():
    return [text for kind in KINDS for text in template_files(kind).values()]


def _words_of_templates():
    code = (NOT_CODE.sub("", text) for text in _texts_of_templates())
    return {word for text in code for word in WORD.findall(text)} - {"Name"}


def _types_of_helpers():
    return {word for text in helpers_of_all_kinds().values() for word in TYPE.findall(text)}


def _is_word_of_cpp(name):
    from pygments.lexers import CppLexer  # installed with rich
    from pygments.token import Name

    kind, _ = next(CppLexer().get_tokens(name))
    return kind is not Name or name in ("main", "std", "errno")


def _names_in(folder):
    return os.listdir(folder) if os.path.isdir(folder) else []
