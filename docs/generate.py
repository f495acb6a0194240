"""Writes the generated sections of docs/reference.md: python docs/generate.py [--check].

Their texts are the docstrings, the parsers of the commands and the comments of the headers. A
section stands between the lines <!-- generated: NAME --> and <!-- end -->; the rest of the page is
written by hand. --check writes nothing; the exit code is 1 if the page differs.
"""

import argparse
import ast
import inspect
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference.md"
SECTION = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

# Variables that PyTorch, the compilers or CUDA read, and the loader too. The loader's own are
# in the docstring of jit_loader.
OTHER_VARIABLES = {
    "XDG_CACHE_HOME": "the folder of `jit_loader/`, the default cache (default: `~/.cache`)",
    "CXX": "the C++ compiler, with flags or a wrapper such as `ccache g++` (default: `c++`)",
    "CC, NVCC_CCBIN": "nvcc's host compiler; CC is preferred (default: `gcc`)",
    "PYTORCH_NVCC, CUDA_HOME, CUDA_PATH, PATH": (
        "where nvcc is searched for, in this order, then in `/usr/local/cuda` and pip's packages; "
        "if `PYTORCH_NVCC` is set, only there"
    ),
    "CPATH, C_INCLUDE_PATH, CPLUS_INCLUDE_PATH, LIBRARY_PATH, COMPILER_PATH": (
        "the compilers' search paths; part of the key of a build"
    ),
    "GCC_EXEC_PREFIX, CCC_OVERRIDE_OPTIONS, SOURCE_DATE_EPOCH, LD_RUN_PATH": (
        "read by the compilers and the linker; part of the key"
    ),
    "WRAPPERS": (  # key.WRAPPER_SETTINGS
        "read by programs that wrap a compiler (Nix, Cray, MPI, Intel, Spack, ccache, Icecream); "
        "part of the key. JIT_LOADER_KEY_VARIABLES names further ones, such as PATH if a wrapper "
        "finds its compiler there"
    ),
    "NVCC_PREPEND_FLAGS, NVCC_APPEND_FLAGS, INCLUDES, SYSTEM_INCLUDES, CUDAFE_FLAGS, PTXAS_FLAGS": (
        "read by nvcc; part of the key of a build with CUDA code"
    ),
    "NVRTC_APPEND_FLAGS": "read by NVRTC; part of the key of a kernel of `cuda_kernel`",
    "CUDNN_HOME, CUDNN_PATH, CUDA_INC_PATH": "read by PyTorch for include paths; part of the key",
    "ATEN_CPU_CAPABILITY": "PyTorch's limit of vector instructions; ops are built for the same",
    "CUDA_LAUNCH_BLOCKING": "`1`: CUDA waits for each kernel: an error names the failed kernel",
    "CUDA_MODULE_LOADING": "`EAGER`: CUDA loads all kernels at the start; a live edit compiles all",
    "LD_LIBRARY_PATH, LD_PRELOAD": "read by the dynamic linker, not part of the key",
    "TMPDIR": "the folder of the compilers' temporary files (default: `/tmp`)",
    "PYTHONPATH": "`jit_loader run` puts a folder first in it, for the processes of the program",
}
# The functions and classes of kernels/shared/ whose comments are contracts for the author of an op.
# The other comments explain the implementation.
KERNEL_HELPERS = (
    *("struct Cpu", "void for_ranges", "struct Cuda", "FOR_FLOATING", "unsigned blocks_for"),
    *("cudaStream_t stream_of", "void check_launch", "using Accumulate", "Sum block_sum"),
    *("int64_t partial_sums", "float reciprocal", "widen(x)", "narrow<T>(x)"),
)


def page(text):
    """Returns the text of the page with new generated sections."""
    return SECTION.sub(lambda match: f"{match[1]}\n{SECTIONS[match[2]]()}\n{match[3]}", text)


# Docstrings.

LISTS = re.compile(r"(Args|Returns|Raises|Attributes):[ \t]*(.*)")
ITEM = re.compile(r"([\w.,* ]+?): (.*)", re.DOTALL)
# Names that _jit_loader/torch_api defines for type checkers.
ALIASES = {
    "Flags": "Sequence[str] | None",
    "Paths": "str | PathLike[str] | Sequence[str | PathLike[str]]",
}


def escaped(text):
    """Escapes the characters that Markdown would interpret, except in code between backticks."""
    parts = re.split(r"(`[^`]*`)", re.sub(r"(?<![\w`])__\w+__(?!\w)", r"`\g<0>`", text))
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([\\<*\[\]]|\b_|_\b)", r"\\\1", parts[i])
    return "".join(parts)


def filled(text, indent=""):
    return textwrap.fill(
        escaped(" ".join(text.split())),
        100,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )


def blocks(text):
    """Yields (is_code, text) for the paragraphs and the indented blocks of a text."""
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        is_code = part.startswith(("  ", ">>>"))
        if not is_code and "\n    " in part and not LISTS.match(part):
            head, _, tail = part.partition("\n    ")  # a paragraph with code right below it
            yield False, head
            yield True, "    " + tail
        else:
            yield is_code, part


def prose(text):
    """Returns the Markdown of a docstring, or of the text of a comment in the same form."""
    written, lines = [], inspect.cleandoc(text)
    for is_code, part in blocks(lines):
        found = LISTS.match(part)
        if found:
            written.append(_list(found[1], found[2], part[found.end() :]))
        elif part.startswith("1. "):
            items = re.split(r"\n(?=\d\. )", part)
            written.append("\n".join(filled(item[3:], item[:3]) for item in items))
        elif is_code:
            is_cpp = re.search(r"#define|::|__global__|\w<[A-Z]", part)
            language = "cpp" if is_cpp else "python" if "(" in part else ""
            written.append(f"```{language}\n{textwrap.dedent(part)}\n```")
        else:
            written.append(filled(part))
    return "\n\n".join(written).replace("```\n\n```python\n", "\n")


def _list(title, rest, body):
    """Returns the Markdown of a section such as Args, whose items are indented."""
    title = {"Args": "Arguments"}.get(title, title)
    if rest:
        return filled(f"{title}: {rest} {body}")
    body = textwrap.dedent(body.strip("\n"))
    if not ITEM.match(body):
        return filled(f"{title}: {body}")
    items = re.split(r"\n(?! )", body)
    return f"{title}:\n\n" + "\n".join(_item(item) for item in items)


def _item(item):
    name, text = ITEM.match(item).groups()
    return filled(f"{', '.join(f'`{n}`' for n in name.split(', '))}: {text}", "- ")


def signature(name, function):
    """Returns the code block of a Python function's signature."""
    parameters, last = [], None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and last not in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        ):
            parameters.append("*")
        last, text = parameter.kind, parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {ALIASES.get(parameter.annotation, parameter.annotation)}"
        if parameter.default is not parameter.empty:
            equals = " = " if ":" in text else "="
            text += equals + getattr(parameter.default, "__name__", repr(parameter.default))
        stars = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}
        parameters.append(stars.get(parameter.kind, "") + text)
    line = f"{name}({', '.join(parameters)})"
    if len(line) > 100:
        line = f"{name}(\n" + "".join(f"    {text},\n" for text in parameters) + ")"
    return f"```python\n{line}\n```"


# The sections.


def functions():
    import jit_loader

    written = []
    for name in jit_loader.__all__:
        value = getattr(jit_loader, name)
        parts = [f"### {name}", prose(value.__doc__)]
        if not inspect.isclass(value):
            parts.insert(1, signature(name, value))
        written.append("\n\n".join(parts))
    return "\n\n".join(written) + "\n"


def notebook():
    import jit_loader

    tree = ast.parse((ROOT / "_jit_loader" / "notebook" / "extension.py").read_text())
    texts = [prose(inspect.getdoc(jit_loader.load_ipython_extension))]
    for node in ast.walk(tree):
        decorators = map(ast.unparse, getattr(node, "decorator_list", ()))
        if {"magic.cell_magic", "magic.line_magic"} & {*decorators}:
            usage, _, text = ast.get_docstring(node).partition(": ")
            title = usage.partition(" ")[0]
            texts.append(f"### {title}\n\n```\n{usage}\n```\n\n{prose(text[0].upper() + text[1:])}")
    return "\n\n".join(texts) + "\n"


def environment():
    import jit_loader
    from _jit_loader.key import WRAPPER_SETTINGS

    found = re.findall(r"^    ([A-Z_]+(?:=\w+)?) +(\S.*)$", jit_loader.__doc__, re.MULTILINE)
    rows = [(f"`{name}`", escaped(text)) for name, text in found]
    for names, text in OTHER_VARIABLES.items():
        names = WRAPPER_SETTINGS if names == "WRAPPERS" else names.split(", ")
        rows.append((", ".join(f"`{name}`" for name in names), text))
    return table(("variable", "effect"), rows)


def commands():
    from _jit_loader.commands import COMMANDS, module_of

    written = []
    for name in COMMANDS:
        command = module_of(name)
        parser = argparse.ArgumentParser(prog=f"jit_loader {name}", add_help=False)
        command.add_arguments(parser)
        parts = [f"### {name}", prose(command.__doc__)]
        rows = [_option(action) for action in parser._actions]
        if rows:
            parts.append(table(("argument", "meaning"), rows).rstrip())
        written.append("\n\n".join(parts))
    return "\n\n".join(written) + "\n"


def _option(action):
    """Returns the row of an argument of a command."""
    words = action.option_strings[-1:] or [action.metavar or action.dest]
    if action.option_strings and action.nargs != 0:
        choices = ", ".join(action.choices) if action.choices else None
        words.append(choices or action.metavar or action.dest.upper())
    if action.nargs in ("*", "+", argparse.REMAINDER):
        words.append("...")
    return f"`{' '.join(words)}`", escaped(action.help)


def differentiable():
    from bindings.shared import defaults
    from bindings.shared import differentiable as module

    function = module.differentiable
    parts = [prose(module.__doc__), "### Its arguments"]
    parts += [signature("differentiable", function), prose(function.__doc__)]
    parts += [
        "### Values of fake and vmap",
        "These functions are in `bindings/shared/defaults.py`:",
    ]
    found = [value for value in vars(defaults).values() if inspect.isfunction(value)]
    parts.append("\n".join(filled(f"`{value.__name__}`: {value.__doc__}", "- ") for value in found))
    return "\n\n".join(parts) + "\n"


# C++ headers.

COMMENT = re.compile(r"(?P<comment>(?:^ *//.*\n)+)(?P<code>(?: *template <.*>\n)*[^\n]*)", re.M)


def text_of(comment):
    return inspect.cleandoc("\n".join(line.strip()[2:] for line in comment.splitlines()))


def declaration(code):
    """Returns a declaration without its body, in lines of at most 100 columns."""
    macro = re.match(r"#define (\w+\(.*?\))", code)
    if macro:
        return macro[1]
    code = re.sub(r"\s*(?:\{.*)?$", "", " ".join(code.split())).removeprefix("inline ")
    return "\n    ".join(textwrap.wrap(code.rstrip(";") + ";", 96)) if code else ""


def documented(text):
    """Yields (declaration, comment) for each comment of a header that precedes a declaration.

    A declaration continues to its parenthesis.
    """
    for match in COMMENT.finditer(text):
        code, end = match["code"], match.end()
        while code.count("(") > code.count(")"):
            line, _, _ = text[end + 1 :].partition("\n")
            code, end = f"{code} {line.strip()}", end + 1 + len(line)
        yield declaration(code), text_of(match["comment"])


def with_contract(code, comment):
    return (f"```cpp\n{code}\n```\n\n" if code else "") + prose(comment)


def header(path, chosen=lambda text: False):
    """Returns the section of a header: its first comment, then the chosen declarations.

    chosen: a predicate of a declaration and the first line of its comment.
    """
    text = (ROOT / path).read_text()
    parts = [f"### {path}", prose(text_of(COMMENT.match(text)["comment"]))]
    for code, comment in documented(text):
        if chosen(f"{code}\n{comment.splitlines()[0]}"):
            parts.append(with_contract(code, comment))
    return "\n\n".join(parts)


def op_header():
    text = (ROOT / "bindings/shared/op.h").read_text()
    public = text[text.index(" public:\n") : text.index(" private:\n")]
    methods = [with_contract(*found) for found in documented(public)]
    intro = header("bindings/shared/op.h", re.compile(r"\bType[;<]").search)
    return "\n\n".join([intro, *methods]) + "\n"


def other_bindings():
    module = re.compile(r"void (?:define|add)\(|^PYTHON_MODULE").search
    differentiable = re.compile(r"void\s+define_differentiable\(").search
    return (
        header("bindings/shared/module.h", module)
        + "\n\n"
        + header("bindings/shared/differentiable.h", differentiable)
        + "\n"
    )


def kernels():
    def chosen(text):
        return any(name in text for name in KERNEL_HELPERS)

    names = sorted(path.name for path in (ROOT / "kernels" / "shared").iterdir())
    return "\n\n".join(header(f"kernels/shared/{name}", chosen) for name in names) + "\n"


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


SECTIONS = {
    function.__name__: function
    for function in (
        *(functions, notebook, environment, commands, differentiable, op_header),
        *(other_bindings, kernels),
    )
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it differs")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    before = PAGE.read_text()
    after = page(before)
    if before != after and not options.check:
        PAGE.write_text(after)
    return 1 if before != after and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
