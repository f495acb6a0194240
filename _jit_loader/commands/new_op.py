"""What a new op is made of: the files of its kind in templates/, and the helpers that they need.

A template is the op NAME, with the formula Name: text that would compile, but for the op's name.
"""

import contextlib
import keyword
import os
import re

KINDS = {
    "elementwise": "a result for each element; to begin with, x * x",
    "binary": "a result for each pair of elements, broadcast; to begin with, a * b",
    "reduction": "one result for all elements; to begin with, the sum of x * x",
    "blank": "a kernel of your own; to begin with, a thread for each element",
}
# What the templates in shared/ have for the result of a kind that takes one tensor: in words, as
# many letters as the template's where clang-format counts them, and as PyTorch (and numpy, where
# the kind has no case of its own) computes it.
RESULTS = {
    "elementwise": {"RESULT_OF_X": "Square of x", "EXPRESSION": "x * x"},
    "reduction": {
        "RESULT_OF_X": "The sum of x * x",
        "EXPRESSION": "torch.linalg.vector_norm(x, dtype=torch.float64).square().to(x.dtype)",
    },
    "blank": {"RESULT_OF_X": "A copy of x", "EXPRESSION": "1 * x"},
}
TEMPLATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")

# What load_op, and the import of any op, take beside what the op's files include.
ALWAYS_NEEDED = (
    "bindings/__init__.py",
    "bindings/shared/__init__.py",
    "bindings/shared/module.cpp",
)
INCLUDE = re.compile(r'^#include "((?:kernels|bindings)/[\w./]+)"', re.MULTILINE)
# Wrappers and helpers import only helpers, which are in bindings/shared/.
IMPORT = re.compile(r"^ *from \.(?:shared\.)?(\w+) import", re.MULTILINE)

NOT_CODE = re.compile(r'"""[^"]*"""|"(?:[^"\\\n]|\\.)*"|//.*|#.*')
WORD = re.compile(r"(?<![.\w])\w+(?!\w|=[^=])")  # but no attribute and no keyword argument
TYPE = re.compile(r"^(?:struct|class|using) (\w+)", re.MULTILINE)


class NewOp:
    """An op to be written into a project; nothing is written before write().

    project: the folder that holds kernels/ and bindings/, or will.
    files, helpers: {path: text}, what is written. other_helpers: paths of those that the project
    has in another version; they stay.

    Raises:
        ValueError: the name cannot be that of an op.
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
            if path not in self.helpers and _read(self._path(path)) != text
        ]

    def write(self):
        """Writes all files, or none."""
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
        """Whether the project uses such a file.

        One that tests and compares all its ops has a row for each; others get a test that stands
        alone.
        """
        tests_all = self._has("tests/bindings/case.py")
        return {
            "tests/bindings/cases/NAME.py": tests_all,
            "tests/test_NAME.py": not tests_all,
            "examples/run_NAME.py": self._has("examples/compare.py"),
        }.get(template, True)

    def _check_free(self):
        helpers = helpers_of_all_kinds()
        taken = [path for path in self.files if path in helpers or self._has(path)]
        modules = {*helpers, *(f"bindings/{name}" for name in _names_in(self._path("bindings")))}
        taken += [path for path in modules if re.match(rf"bindings/{self.name}[./]", path)]
        if taken:
            raise FileExistsError(
                f"{self.name!r} cannot name a new op: {', '.join(sorted(set(taken)))} "
                f"would be in its way in {self.project}"
            )


def check_name(name):
    """Raises a ValueError where a name is none for an op, and says why."""
    why = None
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        why = "it takes small letters, digits and '_', and begins with a letter"
        parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
        plain = re.sub(r"\W+", "_", parts, flags=re.ASCII).strip("_").lower()
        if re.fullmatch("[a-z][a-z0-9_]*", plain):
            why += f", such as {plain!r}"
    elif keyword.iskeyword(name):
        why = "it is a keyword of Python"
    elif _is_word_of_cpp(name):
        why = "it is a word of C++"
    elif {name, formula_name(name)} & (_words_of_templates() | _types_of_helpers()):
        why = "the op's files use that name for something else"
    if why is not None:
        raise ValueError(f"{name!r} cannot name an op: {why}")


def formula_name(name):
    """LeakyRelu of leaky_relu."""
    return "".join(part.capitalize() for part in name.split("_"))


def rendered(text, name):
    """A template's text for an op of that name, in the form that clang-format gives it."""
    text = text.replace("NAME", name).replace("Name", formula_name(name))
    includes = r'(?:#include "kernels/.*\n)+'
    text = re.sub(includes, lambda match: "".join(sorted(match[0].splitlines(True))), text)
    text = re.sub(r"^void .{96,}$", lambda match: _wrapped(match[0]), text, flags=re.MULTILINE)
    return re.sub(r"^(#define \w+\(T\)) (?=.{78})", r"\1 \\\n  ", text, flags=re.MULTILINE)


def _wrapped(declaration):
    """The declaration of a function on two lines, of at most 100 columns."""
    end = declaration.rindex(",", 0, 100) + 1
    indent = " " * (declaration.index("(") + 1)
    return f"{declaration[:end]}\n{indent}{declaration[end + 1 :]}"


def template_files(kind):
    """{path: text} of a kind's templates; paths are relative to the project.

    They are the files of its folder, and those of shared/ that it has no version of.
    """
    files = {**_files_below("shared"), **_files_below(kind)}
    for word, text in RESULTS.get(kind, {}).items():
        files = {path: content.replace(word, text) for path, content in files.items()}
    return files


def _files_below(name):
    folder = os.path.join(TEMPLATES, name)
    return {
        os.path.relpath(os.path.join(parent, name), folder): _read(os.path.join(parent, name))
        for parent, _, names in sorted(os.walk(folder))
        for name in sorted(names)
        if not name.endswith(".pyc")
    }


def needed_helpers(texts):
    """{path: text} of what files include and import, directly or not, of kernels/ and bindings/."""
    found, missing = {}, [*ALWAYS_NEEDED, *_needed_paths(texts)]
    while missing:
        path = missing.pop()
        if path not in found and "NAME" not in path:
            found[path] = _read(os.path.join(_helper_folder(), path))
            missing += _needed_paths([found[path]])
    return dict(sorted(found.items()))


def helpers_of_all_kinds():
    """{path: text} of the helpers that ops of any kind need."""
    return needed_helpers(_texts_of_templates())


def _helper_folder():
    """Returns the folder that holds kernels/ and bindings/ with the helpers.

    setup.py copies them beside templates/. In a checkout they are this project's own.
    """
    commands = os.path.dirname(TEMPLATES)
    installed = os.path.join(commands, "helpers")
    return installed if os.path.isdir(installed) else os.path.dirname(os.path.dirname(commands))


def _needed_paths(texts):
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
    from pygments.lexers import CppLexer  # which rich brings along
    from pygments.token import Name

    kind, _ = next(CppLexer().get_tokens(name))
    return kind is not Name or name in ("main", "std", "errno")


def _names_in(folder):
    return os.listdir(folder) if os.path.isdir(folder) else []


def _read(path):
    with open(path) as file:
        return file.read()
