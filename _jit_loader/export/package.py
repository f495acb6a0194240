"""The project of a wheel: a package with the wrappers, beside the sources that it is compiled of.

It is a plain one, of pyproject.toml and setup.py; wheel_project/ holds what is the same in all.
"""

import ast
import json
import keyword
import os
import re
import shlex
import sys

from _jit_loader.build.checks import check_tools
from _jit_loader.build.pytorch.flags import is_gnu, openmp_flags, own_statics_flags
from _jit_loader.export.modules import modules_of, op_titles
from _jit_loader.key import toolchain
from _jit_loader.ops.load_op import request_for
from _jit_loader.ops.project import has_cuda_kernel
from _jit_loader.ops.wrapper import op_arguments
from _jit_loader.report.variants import parse

TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wheel_project")
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">\n]+)[">]', re.MULTILINE)
# In code, and in the examples of docstrings.
RENAMED = {
    r"\b(from|import)[ \t]+bindings\b": r"\1 {name}",
    r"\bfrom[ \t]+jit_loader[ \t]+import\b": "from {name}.compiled import",
    r"\bimport[ \t]+jit_loader[ \t]+as\b": "import {name}.compiled as",
    r"\bimport[ \t]+jit_loader\b(?=[ \t]*(?:#.*|;.*)?$)": "import {name}.compiled as jit_loader",
    r"\btorch\.ops\.jit_loader\b": "torch.ops.{name}",
}
OWN_FLAGS = {"cxx": "extra_cflags", "nvcc": "extra_cuda_cflags", "link": "extra_ldflags"}
TAKEN = ("bindings", "kernels", "jit_loader", "torch", "compiled")


def check_name(name):
    """Raises a ValueError where a name is none for a package, and says why."""
    why = None
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        why = "it takes small letters, digits and '_', and begins with a letter"
    elif keyword.iskeyword(name) or name in TAKEN or name in sys.stdlib_module_names:
        why = "Python, PyTorch or a project of ops uses it for something else"
    if why is not None:
        raise ValueError(f"--wheel: {name!r} cannot name the package: {why}")


def package_files(name, titles, folder, level, gpus):
    """{path: text} of the project.

    titles: the ops, and other modules of bindings/; [] for all. folder: of the project that they
    are in. level: 'v3', what processors are at least; None where they are not of x86-64. gpus: as
    TORCH_CUDA_ARCH_LIST has them, '' for none.

    Raises: FileNotFoundError and ValueError for what cannot be taken along; RuntimeError where a
        tool is missing.
    """
    for title in titles:
        if parse(title)[1]:
            raise ValueError(
                f"{title}: a wheel has one build of an op; give its wrapper the macros"
            )
    modules = modules_of(titles, folder)
    requests = {op: _request(op, folder, bool(gpus)) for op in op_titles(modules, folder)}
    values = {"PROCESSOR": f"x86-64-{level}" if level else "", "GPUS": gpus}
    values.update(_flags_and_ops(requests, folder))
    files = {}
    for path, text in _template().items():
        text = text.replace("NAME", name)
        for placeholder, value in values.items():
            text = text.replace(f"{placeholder}_VALUE", _code(value))
        files[path.replace("NAME", name)] = text
    for module in _with_packages(modules):
        wrapper = os.path.join(folder, "bindings", f"{module}.py")
        if os.path.exists(wrapper):
            files[f"{name}/{module}.py"] = _renamed(_read(wrapper), name, module)
    sources = [source for request, _ in requests.values() for source in request.sources]
    return {**files, **_with_included(sources, folder)}


def _with_packages(modules):
    """Modules of bindings/ and the packages that they are in, as paths without an ending."""
    parts = [module.split(".") for module in modules]
    packages = {"/".join(part[:end]) for part in parts for end in range(1, len(part))}
    return [*map("/".join, parts), *(f"{package}/__init__" for package in packages)]


def _template():
    return {
        os.path.relpath(os.path.join(parent, file), TEMPLATE): _read(os.path.join(parent, file))
        for parent, _, files in os.walk(TEMPLATE)
        for file in files
        if not file.endswith(".pyc")
    }


def _request(op, folder, for_gpus):
    """(request without the op's own flags, those flags), with the CUDA sources in any case.

    setup.py leaves them out where it is for no GPU.
    """
    name, folder, flags = op_arguments(op, folder)
    with_cuda = has_cuda_kernel(folder, name)
    plain = {kind: [] for kind in OWN_FLAGS.values()}
    check_tools(request_for(name, folder, for_gpus and with_cuda, plain))
    return request_for(name, folder, with_cuda, plain), flags


def _flags_and_ops(requests, folder):
    """What the compilers and the linker are given for all ops, and for each; see setup.py."""
    request, _ = next(iter(requests.values()))
    gnu = is_gnu(toolchain.cxx_command())
    host_is_gnu = is_gnu(toolchain.host_command())
    in_setup = ["-DWITH_CUDA", *toolchain.cpu_flags()]
    cxx = [flag for flag in request.extra_cflags if flag not in in_setup]
    return {
        "CXX_FLAGS": own_statics_flags(gnu) + cxx,
        "NVCC_FLAGS": own_statics_flags(host_is_gnu, "-Xcompiler=") + request.extra_cuda_cflags,
        "LINK_FLAGS": request.extra_ldflags + openmp_flags(gnu, cxx),
        "DEFINES": {
            op: flags["defines"] for op, (_, flags) in requests.items() if "defines" in flags
        },
        "OPS": {
            op: {
                "sources": [os.path.relpath(source, folder) for source in request.sources],
                **_own_flags(flags),
            }
            for op, (request, flags) in requests.items()
        },
    }


def _own_flags(flags):
    """{"cxx": ["-DMORE"]}: what an op's wrapper asks for, as words, which the loader's are not."""
    macros = [f"-D{name}={text}" for name, text in flags.get("defines", {}).items()]
    words = {key: shlex.split(" ".join(flags[kind])) for key, kind in OWN_FLAGS.items()}
    words = {key: own if key == "link" else macros + own for key, own in words.items()}
    return {key: own for key, own in words.items() if own}


def _code(value):
    """A value of strings, lists and dicts as Python, what is long with a line for each item."""
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) or not value or (isinstance(value, list) and len(text) < 80):
        return text
    if isinstance(value, list):
        opened, items, closed = "[", map(_code, value), "]"
    else:
        opened, closed = "{}"
        items = (f"{json.dumps(key)}: {_code(item)}" for key, item in value.items())
    lines = "".join(f"{item},\n" for item in items).splitlines(keepends=True)
    return f"{opened}\n{''.join('    ' + line for line in lines)}{closed}"


def _renamed(text, name, module):
    """A wrapper whose imports are those of the package."""
    tree = ast.parse(text)
    for imported in (node.names for node in ast.walk(tree) if isinstance(node, ast.Import)):
        for alias in imported:
            if alias.name.startswith("bindings") and alias.asname is None:
                raise ValueError(
                    f"bindings/{module}.py has `import {alias.name}`, and the package will have "
                    f"another name; write `from {alias.name} import ...`"
                )
            if alias.name == "jit_loader" and len(imported) > 1:
                raise ValueError(
                    f"bindings/{module}.py: write `import jit_loader` in a line of its own"
                )
    for used in sorted(_used_of_the_loader(tree) - {"load_op"}):
        raise ValueError(
            f"bindings/{module}.py uses jit_loader.{used}, and a wheel does without jit_loader: it "
            "has load_op alone"
        )
    for pattern, replacement in RENAMED.items():
        text = re.sub(pattern, replacement.format(name=name), text, flags=re.MULTILINE)
    return text


def _used_of_the_loader(tree):
    """The names of jit_loader that a wrapper uses."""
    used, names = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "jit_loader":
            used.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            own = [alias for alias in node.names if alias.name == "jit_loader"]
            names.update(alias.asname or alias.name for alias in own)
    return used | {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in names
    }


def _with_included(sources, folder):
    """{path: text} of the sources and of all in the project that they include, directly or not."""
    found, missing = {}, list(sources)
    while missing:
        path = os.path.normpath(missing.pop())
        relative = os.path.relpath(path, folder)
        if relative in found or relative.startswith("..") or not os.path.isfile(path):
            continue
        found[relative] = _read(path)
        for include in INCLUDE.findall(found[relative]):
            missing += [os.path.join(f, include) for f in (os.path.dirname(path), folder)]
    return found


def _read(path):
    with open(path, errors="surrogateescape") as file:
        return file.read()
