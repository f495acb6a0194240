"""The source project of a wheel: its package with the wrappers, and the ops' sources.

It needs only pyproject.toml and setup.py. wheel_project/ holds the files that all wheels have.
"""

import keyword
import os
import pprint
import re
import shlex
import sys

from _jit_loader.build.pytorch.flags import is_gnu, openmp_flags, own_statics_flags
from _jit_loader.export.modules import modules_of, op_titles
from _jit_loader.key import toolchain
from _jit_loader.ops.load_op import request_for
from _jit_loader.ops.project import has_cuda_kernel
from _jit_loader.ops.wrapper import op_arguments
from _jit_loader.report.requests import parse

TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wheel_project")
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">\n]+)[">]', re.MULTILINE)
TAKEN = {"bindings", "kernels", "jit_loader", "torch", "compiled"}
# A wheel's package is not called bindings, and has no jit_loader.
NOT_IN_A_WHEEL = re.compile(r"^ *(?:from|import) +(?:bindings|jit_loader)\b.*", re.MULTILINE)


def write_project(name, titles, project, level, gpus, out):
    """Writes the source project of the package `name` into the folder `out`.

    The wrappers are copied without changes, but shared/loader.py is the one in wheel_project/: it
    imports compiled modules.

    Args:
        name: the name of the package.
        titles: ops and other modules of bindings/; [] for all.
        project: the folder of their project.
        level: the oldest processors to support, such as 'v3'; None if they are not x86-64.
        gpus: the GPUs in the form of TORCH_CUDA_ARCH_LIST, '' for none.
        out: the folder, which must be new or empty.

    Raises:
        FileExistsError: the folder has files.
        FileNotFoundError: a module does not exist.
        ValueError: a title is a variant, or the package or a wrapper would not work.
    """
    _check(name, titles, out)
    modules = modules_of(titles, project)
    extensions = {op: _extension(op, project) for op in op_titles(modules, project)}
    sources = [source for found, _ in extensions.values() for source in found]
    ops = {op: arguments for op, (_, arguments) in extensions.items()}
    values = {
        "PROCESSOR": f"x86-64-{level}" if level else "",
        "GPUS": gpus,
        "DEFINES": {op: arguments.pop("defines") for op, arguments in ops.items()},
        "OPS": ops,
    }
    files = {**_wrappers(modules, project, name), **_filled_template(name, values)}
    for path, text in {**files, **_with_included(sources, project)}.items():
        path = os.path.join(out, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)


def _check(name, titles, out):
    free = name.isidentifier() and name.isascii() and name == name.lower()
    if not free or keyword.iskeyword(name) or name in TAKEN | sys.stdlib_module_names:
        raise ValueError(
            f"--wheel: {name!r} cannot name the package: use lower-case letters, digits and '_', "
            "and no name of Python, PyTorch or jit_loader"
        )
    for title in titles:
        if parse(title)[1]:
            raise ValueError(
                f"{title}: a wheel has one build of an op; set the macros in its wrapper"
            )
    if os.path.lexists(out) and os.listdir(out):
        raise FileExistsError(f"{out} already exists; name a new folder")


def _extension(op, project):
    """Returns (sources, arguments of setup.py's extension()) of an op, with the loader's flags.

    It has CUDA sources even if the wheel is for no GPU: setup.py leaves them out then.
    """
    name, project, flags = op_arguments(op, project)
    request = request_for(name, project, has_cuda_kernel(project, name), flags)
    gnu, host_is_gnu = is_gnu(toolchain.cxx_command()), is_gnu(toolchain.host_command())
    macros = [f"-D{macro}={text}" for macro, text in flags.get("defines", {}).items()]
    in_setup = ["-DWITH_CUDA", *toolchain.cpu_flags()]
    cxx = own_statics_flags(gnu) + [f for f in request.extra_cflags if f not in in_setup]
    nvcc = own_statics_flags(host_is_gnu, "-Xcompiler=") + request.extra_cuda_cflags
    return request.sources, {
        "sources": [os.path.relpath(source, project) for source in request.sources],
        "cxx": [*macros, *_words(cxx)],
        "nvcc": [*macros, *_words(nvcc)],
        "link": _words(request.extra_ldflags + openmp_flags(gnu, cxx)),
        "defines": flags.get("defines", {}),
    }


def _words(flags):
    return shlex.split(" ".join(flags))


def _filled_template(name, values):
    """Returns {path: text} of wheel_project/ with the package's name and {placeholder: value}."""
    files = {}
    for parent, _, names in os.walk(TEMPLATE):
        for path in (os.path.join(parent, file) for file in names if not file.endswith(".pyc")):
            text = re.sub(r"\bNAME\b", name, _read(path))
            for placeholder, value in values.items():
                code = pprint.pformat(value, width=99, sort_dicts=False)
                text = text.replace(f"{placeholder}_VALUE", code)
            files[os.path.relpath(path, TEMPLATE).replace("NAME", name)] = text
    return files


def _wrappers(modules, project, name):
    """Returns {path: text} of the modules and of the packages that they are in."""
    parts = [module.split(".") for module in modules]
    packages = {(*part[:end], "__init__") for part in parts for end in range(1, len(part))}
    found = {}
    for part in [*parts, *packages]:
        wrapper = os.path.join("bindings", *part) + ".py"
        if not os.path.exists(os.path.join(project, wrapper)):
            continue
        text = found["/".join([name, *part]) + ".py"] = _read(os.path.join(project, wrapper))
        if wrapper != "bindings/shared/loader.py" and (line := NOT_IN_A_WHEEL.search(text)):
            raise ValueError(
                f"{wrapper}: `{line[0].strip()}` does not work in a wheel. Import wrappers "
                "relatively (from .NAME import ...), and load_op from .shared.loader"
            )
    return found


def _with_included(sources, project):
    """Returns {path: text} of sources and all files of the project that they include."""
    found, missing = {}, list(sources)
    while missing:
        path = os.path.normpath(missing.pop())
        relative = os.path.relpath(path, project)
        if relative in found or relative.startswith("..") or not os.path.isfile(path):
            continue
        found[relative] = _read(path)
        for include in INCLUDE.findall(found[relative]):
            missing += [os.path.join(f, include) for f in (os.path.dirname(path), project)]
    return found


def _read(path):
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()
