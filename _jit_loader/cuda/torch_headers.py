"""PyTorch's headers for device code: Half, complex, accessors, atomics and the like.

They are PyTorch's own, without what NVRTC cannot compile. They are made once for a PyTorch and
nvcc's flags, in a few seconds, and kept in the cache.
"""

import functools
import os
import re

from _jit_loader.cache import stamp
from _jit_loader.cache.files import kept
from _jit_loader.cuda.declarations import split, tokens_of
from _jit_loader.cuda.device_code import DeviceText, without_errors
from _jit_loader.cuda.headers import with_headers
from _jit_loader.cuda.nvrtc import Program
from _jit_loader.cuda.preprocess import FOLDER, preprocess
from _jit_loader.system import included, read_text

_UTIL = "bit_cast floating_point_utils Half BFloat16 Float8_e8m0fnu Float8_e4m3fn Float8_e5m2"
_UTIL += " Float8_fnuz_cvt Float8_e4m3fnuz Float8_e5m2fnuz Float4_e2m1fn_x2 complex complex_utils"
_UTIL += " TypeSafeSignMath bits qint8 qint32 quint8 quint4x2 quint2x4 TypeCast irange"
_ATEN = "core/TensorAccessor NumericUtils cuda/Atomic native/cuda/KernelUtils AccumulateType"
_ATEN += " OpMathType cuda/detail/TensorInfo cuda/detail/IndexUtils cuda/DeviceUtils ceil_div"
_ATEN += " cuda/ApplyGridUtils cuda/detail/PhiloxCudaStateRaw cuda/PhiloxCudaState"
_ATEN += " cuda/detail/UnpackRaw cuda/NumericLimits"
_HEADERS = [
    *("torch/headeronly/macros/Macros.h", "c10/macros/Macros.h"),
    *(f"{place}/util/{name}.h" for name in _UTIL.split() for place in ("torch/headeronly", "c10")),
    *("torch/headeronly/util/NumericUtils.h", "torch/headeronly/core/ScalarType.h"),
    *("torch/headeronly/core/TensorAccessor.h", "torch/headeronly/cuda/Atomic.h"),
    *("torch/headeronly/cuda/KernelUtils.h", "c10/cuda/CUDAMathCompat.h"),
    *(f"ATen/{name}.{ending}" for name in _ATEN.split() for ending in ("h", "cuh")),
]
# Declares what these headers need of others.
_FIRST = read_text(os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_first.h"))
# Finds PyTorch's folder of headers, with a / at its end, in a path.
_FOLDER = re.compile(r"(.*/)(?:c10|torch/headeronly)/macros/Macros\.h")
_COMPLEX = "torch/headeronly/util/complex.h"
_PART = "not meant to be individually included"  # of complex_utils.h in PyTorch 2.11
# Operators are found by their arguments' types; of these headers not all may be there.
_LEFT_OUT = re.compile(r"#include|\s*using [\w:]+::operator")
_TOO_COMMON = {"", "operator", "T", "value", "numeric_limits", "hash", "std", "class"}


def torch_text(found, words, command, options):
    """Returns the text of the headers that the source includes and whose names it uses.

    found: the Preprocessed source. words: of the device code. command: the words of nvcc's command.
    options: NVRTC's.
    """
    root = next((match[1] for match in map(_FOLDER.fullmatch, found.headers) if match), None)
    if root is None:
        return ""
    reached = {path[len(root) :] for path in found.headers if path.startswith(root)}
    headers = {header["name"]: header for header in _headers(root, _flags(command), tuple(options))}
    wanted = {name for name in reached & headers.keys() if words & {*headers[name]["declares"]}}
    waiting = list(wanted)
    while waiting:
        more = {*headers[waiting.pop()]["includes"]} - wanted
        wanted |= more
        waiting += more
    texts = [header["text"] for name, header in headers.items() if name in wanted]
    return "".join([_FIRST, *texts]) if texts else ""


@functools.lru_cache(maxsize=8)
def _headers(root, flags, options):
    """Returns the headers, from the cache if it has them; one comes after those it includes."""
    inputs = [flags, root, stamp(f"{root}torch/version.h"), _FIRST, _HEADERS, options[0]]
    return kept(FOLDER, inputs, lambda: _made(root, flags, Program("", "", list(options), {})))


def _flags(command):
    """Returns the words of nvcc's command without the user's folders, the source and the output."""
    found, words = [], iter(command)
    for word in words:
        if word in ("-o", "-c", "-MF", "-I"):
            next(words)
        elif word == "-isystem":
            found.append(f"-I{next(words)}")
        elif not word.startswith(("-I", "-DTORCH_")):  # the extension's name
            found.append(word)
    return tuple(found)


def _made(root, flags, program):
    names = list(dict.fromkeys(name for name in _HEADERS if os.path.exists(root + name)))
    texts = {root + name: read_text(root + name) for name in names}
    source = f"{root}jit_loader.cu"
    included = [name for name in names if _PART not in texts[root + name]]
    texts[source] = _FIRST + "".join(f"#include <{name}>\n" for name in included)
    command = [*flags, f"-I{root[:-1]}", "-c", source, "-o", "a.o"]
    found = preprocess(source, texts, command, program.options[0].removeprefix("-arch=sm_"))
    code = DeviceText(found.text)
    words = {*re.findall(r"[^\W\d]\w*", found.text)}
    removed = without_errors(with_headers(program, found.before, found.headers, words), code, [])
    parts, current = {}, None
    for line in code.text(removed).split("\n"):
        if marker := re.match(r'#line \d+ "(.*)"', line):
            current = marker[1][len(root) :]
            parts[current] = parts.pop(current, [])  # the one that ends last is the last
        elif current in names and line.strip() and not _LEFT_OUT.match(line):
            parts[current].append(line)
    return [
        {
            "name": name,
            "text": "\n".join([*lines, ""]),
            "declares": sorted(_declared("\n".join(lines))),
            "includes": sorted(_included(name, texts[root + name], lines) & {*names}),
        }
        for name, lines in parts.items()
        if name in names
    ]


def _included(name, text, lines):
    """Returns the headers that a header includes, or needs: some only declare complex."""
    needs_complex = any("c10::complex<" in line for line in lines)
    found = {*included(text)}
    return found | {_COMPLEX} if needs_complex and "headeronly/util/complex" not in name else found


def _declared(text):
    found = split(tokens_of(text))
    aliases = [each.words for each in found if each.words[0] in ("using", "typedef")]
    names = {each.name for each in found} | {words[1 if "=" in words else -1] for words in aliases}
    return {name for name in names - _TOO_COMMON if not name.startswith("operator")}
