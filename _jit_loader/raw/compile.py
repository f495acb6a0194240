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
from _jit_loader.cuda.headers import UNROLLED, changed_headers
from _jit_loader.cuda.nvrtc import NvrtcError, Program, compile_program, cuda_headers
from _jit_loader.key.digests import Digests
from _jit_loader.key.roots import Roots
from _jit_loader.raw import TEXT, read_build
from _jit_loader.raw.headers import OF_C, of_cccl
from _jit_loader.report import errors
from _jit_loader.report.requests import variant_of
from _jit_loader.report.text import demangled
from _jit_loader.system import is_set, read_text

# Appended to a source. The first function selects the overload that returns void, which is the
# kernel, of those that CUDA may have under this name. The name of an instance of the second in the
# compiled code has the types of the kernel's parameters, also if the kernel's own name has none
# because of extern "C".
_NAMING = """
template <class... jit_loader_types>
constexpr auto jit_loader_kernel(void (*jit_loader_f)(jit_loader_types...)) { return jit_loader_f; }
template <class jit_loader_type> __global__ void jit_loader_signature() {}
"""
_NAMES = "jit_loader_kernel({})", "jit_loader_signature<decltype(jit_loader_kernel({}))>"
# Of a text with a line break at its start: "^" would make the search of CUDA's headers (1 MB) slow.
_INCLUDE = re.compile(r'\n[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|(\S+))')
_CONSTANTS = re.compile(rb"\.nv\.constant0\.([\w$.]+)\0")  # a section that each kernel has
_WITHOUT_CCCL = (
    "\nThe headers of the C++ library, cub and cuda/std and those that cooperative groups include "
    'belong to CCCL, which is not installed: pip install "cuda-toolkit[nvcc,cccl]=={}.*"'
)


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
    # Such as cuda_kernel.scale_float for scale<float>.
    words = re.findall(r"[A-Za-z0-9]+", kernel.expression) or ["all"]
    name, roots = f"cuda_kernel.{'_'.join(words)[:80]}", Roots(kernel.folder)
    # What the store has to know. The file of a build has the name.
    request = types.SimpleNamespace(
        name=name, key=key, form="executable", with_cuda=True, roots=roots, programs={}
    )
    builds = Builds(request, memo, {})
    digests = Digests(builds.known())
    build = builds.find(digests)
    if build is not None and (found := read_build(build.library)) is not None:
        return found
    if is_set("JIT_LOADER_NO_COMPILE"):
        raise errors.CompilingForbidden(
            f"{kernel.expression} has to be compiled, but JIT_LOADER_NO_COMPILE is set"
        )
    path = kernel.path or os.path.join(builds.folder, TEXT)
    with contextlib.suppress(OSError):  # the cache cannot be written
        os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
        os.makedirs(builds.folder, mode=0o700, exist_ok=True)
        if kernel.path is None:  # tools show its lines
            write_atomically(path, kernel.source.encode())
    headers, virtual = _headers(kernel, roots, digests)
    program = Program(kernel.source + _NAMING, path, _options(kernel, arch), virtual)
    naming = [text.format(kernel.expression) for text in _NAMES] if kernel.expression else []
    try:
        code, names = compile_program(program, naming)
    except NvrtcError as error:
        raise _explained(str(error), path, kernel) from None
    symbol, signature = map(names.get, naming) if naming else (None, "")
    parameters = _parameters(demangled(signature))
    if _headers(kernel, roots, digests)[0] == headers:  # else the code may be of either version
        pytorch = [torch.__version__, None, torch.version.cuda]
        shown = {"PyTorch": pytorch, "with CUDA": True, "variant": variant_of(kernel.defines)}
        # The request is what `list` shows.
        manifest = {**headers, "symbol": symbol, "types": parameters, "request": shown}
        with contextlib.suppress(OSError):  # the cache cannot be written
            _publish(builds, manifest, code, digests)
    return code, symbol, parameters


def _publish(builds, manifest, code, digests):
    """Stores a build; processes that do so at the same time write equal files."""
    folder = os.path.join(builds.folder, digest_of([manifest["files"], code]))
    os.makedirs(folder, mode=0o700, exist_ok=True)
    open(os.path.join(builds.folder, "lock"), "ab").close()  # pruning locks it
    build = Build(folder, builds.request)
    write_atomically(build.library, code)
    library = digests.digest(build.library)
    manifest = {**manifest, "name": builds.request.name, "created": time.time(), "library": library}
    write_manifest(folder, manifest)
    builds.write_memo(build, manifest, digests)


def _headers(kernel, roots, digests):
    """Returns the part of a manifest about headers, and {name: text} of those that are no files."""
    folders = cuda_headers()
    texts = of_cccl(folders)
    users, system, virtual, not_there = _included(kernel, folders, texts)
    texts = {**{name: texts[name] for name in virtual}, **OF_C}
    files = {roots.relative(path): digests.digest(path) for path in [*users, *system]}
    absent = {}
    for folder, name in map(os.path.split, not_there):
        absent.setdefault(roots.relative(folder), []).append(name)
    inputs = {"files": files, "user files": [*map(roots.relative, users)], "absent": absent}
    return {**inputs, "tools": {}, "programs": {}}, {**texts, **changed_headers(tuple(folders))}


def _included(kernel, folders, texts):
    """Returns the headers that a kernel's source includes, directly or not; NVRTC lists none.

    folders: of CUDA's headers, which are searched last. texts: {name: text} of headers to read
    instead of files that exist nowhere.

    They are four sorted lists: the paths of the user's headers, those of CUDA's, the names of those
    in texts, and the paths that were searched before and do not exist.

    Conditions are not evaluated: a header under `#if 0` counts, which at worst causes a needless
    compilation. An include whose name is a macro is refused, because the headers that it reads are
    unknown. In CUDA's own headers it is ignored.

    Raises:
        ValueError: the name of an include is a macro.
    """
    users, system, virtual, absent = set(), set(), set(), set()
    roots = tuple(folder + os.sep for folder in folders)
    waiting = [(kernel.source, kernel.folder, False)]
    while waiting:
        text, text_folder, in_system = waiting.pop()
        for quoted, angled, macro in _INCLUDE.findall("\n" + text):
            if macro and in_system:
                continue
            if macro:
                raise ValueError(
                    f"#include {macro}: the name of an include must not be a macro, because "
                    "changes of its header would not be noticed"
                )
            name = quoted or angled
            for folder in [*([text_folder] if quoted else []), *kernel.includes, *folders]:
                path = os.path.normpath(os.path.join(folder, name))
                is_system = path.startswith(roots)
                if os.path.isfile(path):
                    found = system if is_system else users
                    if path not in found:
                        found.add(path)
                        waiting.append((read_text(path), os.path.dirname(path), is_system))
                    break
                if not (in_system or is_system):
                    absent.add(path)
            else:
                # CUDA's headers include these for other compilers than NVRTC.
                if name in texts and not in_system and name not in virtual:
                    virtual.add(name)
                    waiting.append((texts[name], kernel.folder, True))
    return list(map(sorted, (users, system, virtual, absent)))


def _options(kernel, arch):
    folders = [kernel.folder, *kernel.includes, *cuda_headers()]
    return [
        *(f"-arch={arch}", "-std=c++17", "-lineinfo", "-default-device", UNROLLED),
        *(f"-D{name}={text}" for name, text in kernel.defines.items()),
        *(f"-I{folder}" for folder in folders),
        *kernel.options,
    ]


def _parameters(signature):
    """Returns ['float*', 'int'] for 'void jit_loader_signature<void (*)(float*, int)>()'.

    Arguments of templates are left out, as they may have commas.
    """
    listed = signature.partition("(*)(")[2].removesuffix(")>()")
    while (shorter := re.sub(r"<[^<>]*>", "", listed)) != listed:
        listed = shorter
    return listed.split(", ") if listed else []


def _explained(log, path, kernel):
    """Returns a CompileError with the first message of NVRTC's log, its place and source line.

    path: the source's. NVRTC appends a line for the kernel's name; errors in it name another file.
    """
    title, lines = kernel.expression or "cuda_kernel", log.splitlines()
    project = os.getcwd() if kernel.path else os.path.dirname(path)
    found = errors.errors_with_line(lines, project)
    in_source = [error for error in found if "__nv_name_map" not in error[0]]
    if in_source:
        text = "\n".join(errors.first_error(title, in_source, project))
    elif found:
        text = (
            f"the source has no kernel {title}, or several of this name. Name a template with its "
            "arguments, such as fill<float>"
        )
    else:
        text = f"{title}: {lines[0]}"
    if "cannot open source file" in text and not of_cccl(cuda_headers()):
        text += _WITHOUT_CCCL.format(torch.version.cuda)
    explained = errors.CompileError(text)
    explained.output = log
    return explained


def kernels_of(code):
    """Returns the names of the kernels in compiled code, with the types of their parameters."""
    return sorted(map(demangled, {name.decode() for name in _CONSTANTS.findall(code)}))
