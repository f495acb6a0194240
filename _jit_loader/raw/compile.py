"""Compiles a kernel with NVRTC: finds its headers and parameters, and formats its errors."""

import contextlib
import os
import re
import time
import types

import torch

from _jit_loader.cache import cache_folder, check_trusted, digest_of
from _jit_loader.cache.files import write_atomically
from _jit_loader.cache.store import Build, Builds, write_manifest
from _jit_loader.cuda.nvrtc import (
    SYSTEM_HEADERS,
    NvrtcError,
    Program,
    closure,
    compile_program,
    cuda_headers,
)
from _jit_loader.key.digests import Digests
from _jit_loader.key.roots import Roots
from _jit_loader.raw import TEXT, read_build
from _jit_loader.report.errors import (
    ERROR_LINE,
    CompileError,
    CompilingForbidden,
    demangled,
    place,
    source_line,
)
from _jit_loader.report.requests import variant_of
from _jit_loader.report.text import count
from _jit_loader.system import is_set

# Appended to a source. The first function picks the kernel of a name, which is the function that
# returns nothing, of those that CUDA may have under this name. The name of an instance of the
# second in the compiled code has the types of the kernel's parameters, also if the kernel's own
# name has none because of extern "C".
_NAMING = """
template <class... jit_loader_types>
constexpr auto jit_loader_kernel(void (*jit_loader_f)(jit_loader_types...)) { return jit_loader_f; }
template <class jit_loader_type> __global__ void jit_loader_signature() {}
"""
_NAMES = "jit_loader_kernel({})", "jit_loader_signature<decltype(jit_loader_kernel({}))>"
_CONSTANTS = re.compile(rb"\.nv\.constant0\.([\w$.]+)\0")  # a section that each kernel has


def find_or_compile(kernel, arch, key, memo):
    """Returns (code, symbol, types), as read_build does: of a build in the cache, or a new one.

    kernel: a Kernel. key: of its request. memo: the path of its memo.

    Raises:
        CompileError: the source does not compile.
        ToolMissing: there is no NVRTC, or JIT_LOADER_NO_COMPILE forbids the compilation.
        ValueError: an include is not a plain name.
    """
    with contextlib.suppress(FileNotFoundError):
        check_trusted(cache_folder())
    name, roots = title_of_kernel(kernel.expression), Roots(kernel.folder)
    # What the store has to know. The file of a build has the name.
    request = {"name": name, "key": key, "form": "executable", "with_cuda": True, "roots": roots}
    builds = Builds(types.SimpleNamespace(**request), memo, {})
    digests = Digests(builds.known())
    build = builds.find({}, digests)
    if build is not None and (found := read_build(build.library)) is not None:
        return found
    if is_set("JIT_LOADER_NO_COMPILE"):
        raise CompilingForbidden(
            f"{kernel.expression} would have to be compiled, and JIT_LOADER_NO_COMPILE forbids it; "
            "compile it once with the same cache and without JIT_LOADER_NO_COMPILE"
        )
    path = kernel.path or _written_source(builds.folder, kernel.source)
    headers, missing = _headers(kernel, roots, digests)
    # A system header that exists is read from its file. "cstdint" includes "stdint.h".
    virtual = SYSTEM_HEADERS if any(name in SYSTEM_HEADERS for name in missing) else {}
    program = Program(kernel.source + _NAMING, path, _options(kernel, arch), virtual)
    naming = [text.format(kernel.expression) for text in _NAMES] if kernel.expression else []
    try:
        code, names = compile_program(program, naming)
    except NvrtcError as error:
        raise _explained(str(error), program, kernel) from None
    symbol, parameters = None, []
    if naming:
        symbol, signature = map(names.get, naming)
        parameters = _parameters(demangled(signature))
    if _headers(kernel, roots, digests)[0] == headers:  # else the code may be of either version
        manifest = {**headers, "symbol": symbol, "types": parameters}
        manifest["request"] = {  # what `list` shows
            "PyTorch": [torch.__version__, None, torch.version.cuda],
            "with CUDA": True,
            "variant": variant_of(kernel.defines),
        }
        with contextlib.suppress(OSError):  # the cache cannot be written
            _publish(builds, manifest, code, digests)
    return code, symbol, parameters


def title_of_kernel(expression):
    """Returns the name of a kernel's builds: 'cuda_kernel.scale_float' for 'scale<float>'.

    Without an expression, it is the name of the builds of all kernels of a source.
    """
    words = re.findall(r"[A-Za-z0-9]+", expression)
    return "cuda_kernel." + ("_".join(words)[:80] or "all")


def _written_source(folder, source):
    """Returns the path of a copy of a source text, of which tools show the lines."""
    path = os.path.join(folder, TEXT)
    try:
        os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        write_atomically(path, source.encode())
    except OSError:  # the cache cannot be written
        return TEXT
    return path


def _publish(builds, manifest, code, digests):
    """Stores a build; processes that do so at the same time write equal files."""
    folder = os.path.join(builds.folder, digest_of([manifest["files"], code]))
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(os.path.join(builds.folder, "lock"), "ab"):  # pruning locks it
        pass
    build = Build(folder, builds.request)
    write_atomically(build.library, code)
    library = digests.digest(build.library)
    manifest = {**manifest, "name": builds.request.name, "created": time.time(), "library": library}
    write_manifest(folder, manifest)
    builds.write_memo({}, build, manifest, digests)


def _headers(kernel, roots, digests):
    """Returns the part of a manifest about headers, and the names that were found nowhere."""
    found = closure(kernel.source, kernel.folder, kernel.includes, cuda_headers())
    files = {roots.relative(path): digests.digest(path) for path in [*found.files, *found.system]}
    absent = {}
    for folder, name in map(os.path.split, found.absent):
        absent.setdefault(roots.relative(folder), []).append(name)
    user_files = list(map(roots.relative, found.files))
    inputs = {
        "files": files,
        "user files": user_files,
        "absent": absent,
        "tools": {},
        "programs": {},
    }
    return inputs, found.missing


def _options(kernel, arch):
    folders = [kernel.folder, *kernel.includes, *cuda_headers()]
    return [
        *(f"-arch={arch}", "-std=c++17", "-lineinfo", "-default-device"),
        *(f"-D{name}={text}" for name, text in kernel.defines.items()),
        *(f"-I{folder}" for folder in folders),
        *kernel.options,
    ]


def _parameters(signature):
    """Returns ['float*', 'int'] for 'void jit_loader_signature<void (*)(float*, int)>()'."""
    listed = signature.partition("(*)(")[2].removesuffix(")>()")
    found, depth = [""], 0
    for letter in listed:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [text.strip() for text in found if text]


def _explained(log, program, kernel):
    """Returns a CompileError with the first message of NVRTC's log, its place and source line."""
    name = f"{kernel.expression}: " if kernel.expression else ""
    found = [match for match in map(ERROR_LINE.match, log.splitlines()) if match]
    # NVRTC appends a line for the kernel's name; errors in it name a file __nv_name_map.
    in_source = [match for match in found if "__nv_name_map" not in match["file"]]
    lines = [f"{name}{log.splitlines()[0]}"]
    if found and not in_source:
        lines = [_unknown_name(program, kernel.expression)]
    elif in_source:
        first, *others = in_source
        number = int(first["line"] or first["nvcc_line"])
        is_text = kernel.path is None and first["file"] == program.path
        where = place(TEXT if is_text else first["file"], number, os.getcwd())
        lines = [f"{name}{where}error: {first['message']}"]
        lines += source_line(first["file"], number)
        if others:
            lines.append(f"  and {count(len(others), 'more error')}")
    explained = CompileError("\n".join(lines))
    explained.output = log
    return explained


def _unknown_name(program, name):
    kernels = kernels_of(compile_program(program)[0])
    has = f"it has {', '.join(kernels)}" if kernels else "it has no other kernel"
    return (
        f"the source has no kernel {name}: {has}. Name a template with its arguments, such as "
        "fill<float>"
    )


def kernels_of(code):
    """Returns the names of the kernels in compiled code, with the types of their parameters."""
    found = {name.decode() for name in _CONSTANTS.findall(code)}
    return sorted(map(demangled, found))
