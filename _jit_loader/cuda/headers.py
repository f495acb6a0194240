"""The headers that NVRTC reads: libstdc++'s and CUDA's own where it can, small ones otherwise.

With g++'s macros, NVRTC reads libstdc++'s headers of types and algorithms, so std::max is that of
nvcc. What it has built in, or what only host code uses, is an empty header here.
"""

import functools
import os
import re

from _jit_loader.cache import digest_of, stamp
from _jit_loader.cuda.nvrtc import cuda_headers
from _jit_loader.key.toolchain import host_command
from _jit_loader.system import read_text
from _jit_loader.system.processes import run

# As nvcc. CCCL has 16 for NVRTC, which then expands macros of cuda/std/type_traits for 1.1 s.
UNROLLED = "-D_CCCL_META_UNROLL_LIMIT=10"
PREAMBLE = "jit_loader_preamble.h"
_BUILTINS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "builtins.h")
OPTIONS = [
    *(f"--pre-include={PREAMBLE}", "-default-device", "-device-int128"),
    *("-builtin-move-forward=false", UNROLLED),
]
# Headers of CUDA that device code needs. All others of the system are empty.
_REAL = re.compile(
    r"cuda_(?:fp\d+|bf16)\.h|cooperative_groups(?:/\w+)*\.h|cub/(?!device/|cub\.cuh).*|cuda/.*"
    r"|nv/.*|c?uComplex\.h|mma\.h|math_constants\.h|curand_\w+\.h|cuda_pipeline\w*\.h"
    r"|cuda_awbarrier\w*\.h|thrust/(?:complex|pair|tuple|functional)\.h|jit_loader_.*"
    r"|type_traits|limits|utility|tuple|array|numeric|bit|concepts|compare|initializer_list"
    r"|numbers|ratio|cfloat|float\.h|cstdint|cstddef|stddef\.h|bits/.*"
)
_OF_C = "math", "string", "stdlib", "stdio", "assert"  # NVRTC has the functions
BUILT_IN = [*(f"c{name}" for name in _OF_C), *(f"{name}.h" for name in _OF_C)]
_EMPTY = (
    *("stdint.h", "wchar.h", "time.h", "errno.h", "ctype.h", "limits.h", "sys/types.h", *BUILT_IN),
    *("features.h", "bits/os_defines.h", "climits", "iosfwd", "new", "ext/alloc_traits.h"),
)
# Headers that are read if the device code has one of these words.
_TRIGGERS = {
    "limits": {"numeric_limits"},
    "utility": {"pair", "integer_sequence", "index_sequence", "make_index_sequence", "exchange"},
    "tuple": {"tuple", "tie", "make_tuple", "get"},
    "array": {"array"},
    "bits/stl_algobase.h": {"min", "max", "swap", "fill", "fill_n", "copy", "equal", "lower_bound"},
    "bits/stl_function.h": {"plus", "less", "greater", "multiplies", "equal_to", "minus"},
    "cuda_fp16.h": {"half", "half2", "__half", "__half2"},
    "cuda_bf16.h": {"nv_bfloat16", "nv_bfloat162", "__nv_bfloat16", "__nv_bfloat162"},
    "cuda_fp8.h": {"__nv_fp8_e4m3", "__nv_fp8_e5m2"},
    "bits/stl_algo.h": {"clamp", "upper_bound", "minmax", "max_element", "min_element", "sort"}
    | {"initializer_list"},  # std::max of one
}
_OF_BLOCKS = "reduce", "scan", "load", "store", "radix_sort", "exchange", "shuffle"
_CUB = [*(f"block/block_{name}" for name in _OF_BLOCKS), "warp/warp_reduce", "warp/warp_scan"]
# {header: [(regular expression, replacement)]}: what they have for other compilers.
_WITHOUT_LIBSTDCXX = [(r"_CCCL_COMPILER\(NVRTC\)", "!defined(__GLIBCXX__)")]
_TYPES_OF_NVRTC = [(r"^typedef [^;\n]*u?int(?:\d+|ptr)_t;", "#include <stdint.h>")]
_CHANGES = {
    "bits/utility.h": [(r"__has_builtin\(__make_integer_seq\)", "1")],
    # NVRTC's int64_t is long long, g++'s is long: mangled names and overloads would differ.
    "cuda/std/cstdint": [(r"!_CCCL_COMPILER\(NVRTC\)", "1"), (r"_CCCL_COMPILER\(NVRTC\)", "0")],
    "cuda/std/__tuple_dir/structured_bindings.h": _WITHOUT_LIBSTDCXX,
    "cuda_pipeline_helpers.h": _TYPES_OF_NVRTC,
    "cuda_awbarrier_helpers.h": _TYPES_OF_NVRTC,
}
# What NVRTC does not declare with -minimal, which saves 0.01 s. builtins.h has two of the types.
_OF_RUNTIME = re.compile("cuda(?!Stream_t|Event_t)|CU[a-z]|tex|surf|library")
_OF_NVRTC = re.compile(
    r"#define (?:__cplusplus|__STDC\w*|_GNU_SOURCE|__CUDA\w*|__cpp_\w+|__EXCEPTIONS|__GNU[CG]\w*"
    r"|linux|unix)\b"
)


def with_headers(program, names, paths, words, more=""):
    """Returns an nvrtc.Program with the headers that its source needs.

    Arguments:
        names: the headers of the system that it includes.
        paths: those that these include.
        words: of the source.
        more: text of further headers.
    """
    standard = next((o for o in program.options if re.match("--?std=", o)), "-std=c++17")
    macros, folders = _of_compiler(host_command()[0], standard)
    folders = [*folders, *_folders_of_cuda(paths)]
    words = words | {*re.findall(r"[^\W\d]\w*", more)}
    used = [name for name, of in _TRIGGERS.items() if of & words]
    needed = [name for name in used if any(path.endswith(f"/{name}") for path in paths)]
    options = [*program.options, *OPTIONS, *(f"-I{folder}" for folder in folders)]
    builtins = read_text(_BUILTINS)
    # Those of std take NVRTC as long as a small kernel. CUDA's need them.
    is_std = "std" in words or any(name.startswith("cuda_") for name in needed)
    slow = any(re.match("cub/|thrust/|cooperative_groups", name) for name in names)
    if is_std or slow or any(map(_REAL.fullmatch, names)):
        needed = ["initializer_list", "cstddef", "cstdint", "bits/move.h", "type_traits", *needed]
        options.append("-builtin-initializer-list=false")
    else:
        needed = []
        # Only the functions that it uses, which saves 0.01 s.
        builtins = re.sub(r" X\((\w+)\)", lambda m: m[0] if m[1] in words else "", builtins)
        options += [] if any(map(_OF_RUNTIME.match, words)) else ["-minimal"]
    preamble = [macros, builtins, *(f"#include <{name}>\n" for name in needed), more]
    # NVRTC takes a second for them, and host code alone uses most.
    iterators = {f"thrust/iterator/{word}.h" for word in words}
    virtual = {
        **dict.fromkeys(_EMPTY, "#pragma once\n"),
        **{n: "#pragma once\n" for n in names if n not in iterators and not _REAL.fullmatch(n)},
        **changed_headers(tuple(folders)),
        PREAMBLE: "".join(preamble),
        # For --pch, with which NVRTC does not look whether files have changed.
        "jit_loader_stamps": digest_of([stamp(path) for path in paths if slow]),
    }
    return program._replace(options=options, headers=virtual)


def _folders_of_cuda(paths):
    """Returns the folders of CUDA's headers: those of nvcc if paths has its headers."""
    folder = next((os.path.dirname(p) for p in paths if p.endswith("/cuda_runtime.h")), None)
    return [folder, os.path.join(folder, "cccl")] if folder else cuda_headers()


@functools.lru_cache
def _of_compiler(compiler, standard):
    """Returns g++'s macros, without those that NVRTC has, and its folders of headers."""
    result = run([compiler, "-E", "-dM", "-v", "-x", "c++", standard, os.devnull])
    searched = result.stderr.decode(errors="replace").partition("search starts here")[2]
    folders = re.findall(r"^ (/.*)$", searched, re.MULTILINE)
    ours = "type_traits", "bits/c++config.h", "stdint-gcc.h"
    folders = [f for f in folders if any(os.path.exists(os.path.join(f, name)) for name in ours)]
    lines = result.stdout.decode(errors="replace").splitlines()
    return "\n".join(["#pragma once", *(m for m in lines if not _OF_NVRTC.match(m)), ""]), folders


@functools.lru_cache
def changed_headers(folders):
    """Returns {name: text} of headers that NVRTC reads after a change."""
    found = {"cub/cub.cuh": "".join(f"#include <cub/{name}.cuh>\n" for name in _CUB)}
    for name, changes in _CHANGES.items():
        path = next(filter(os.path.exists, (os.path.join(f, name) for f in folders)), None)
        if path is not None:
            found[name] = read_text(path)
            for old, new in changes:
                found[name] = re.sub(old, new, found[name], flags=re.MULTILINE)
    return found
