"""Finds the kernels of a source, and parses their parameters."""

import re

import torch

from _jit_loader.raw.parameters import Parameter, Signature
from _jit_loader.report.symbols import demangled

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TEMPLATE = re.compile(r"template\s*<([^<>]*)>\s*$")
_KERNEL = re.compile(
    r"\b__global__\b([^;{}()]*(?:__launch_bounds__\s*\([^()]*\))?[^;{}()]*?)\b(\w+)\s*\("
)

# {C++ type: (its format character in the module struct, the dtype of a tensor of it)}
_SCALARS = {
    "bool": ("?", torch.bool),
    "char": ("b", torch.int8),
    "signed char": ("b", torch.int8),
    "unsigned char": ("B", torch.uint8),
    "short": ("h", torch.int16),
    "unsigned short": ("H", torch.uint16),
    "int": ("i", torch.int32),
    "unsigned int": ("I", torch.uint32),
    "long": ("l", torch.int64),
    "unsigned long": ("L", torch.uint64),
    "long long": ("q", torch.int64),
    "unsigned long long": ("Q", torch.uint64),
    "float": ("f", torch.float32),
    "double": ("d", torch.float64),
    "__half": ("e", torch.float16),
    "__nv_bfloat16": ("H", torch.bfloat16),
}
_ALIASES = {
    "int8_t": "signed char",
    "uint8_t": "unsigned char",
    "int16_t": "short",
    "uint16_t": "unsigned short",
    "int32_t": "int",
    "uint32_t": "unsigned int",
    "int64_t": "long",
    "uint64_t": "unsigned long",
    "size_t": "unsigned long",
    "ptrdiff_t": "long",
    "unsigned": "unsigned int",
    "long int": "long",
    "unsigned long int": "unsigned long",
    "long long int": "long long",
    "half": "__half",
    "nv_bfloat16": "__nv_bfloat16",
}
_VECTOR = re.compile(r"(u?(?:char|short|int|long|longlong)|float|double)[1-4]$")


def kernel_names(source):
    """Returns the names of the __global__ functions that a source defines, templates left out."""
    return [name for name, template, _ in _definitions(source) if template is None]


def listed_kernels(source):
    """Returns the __global__ functions of a source with their template parameters: 'f<class T>'."""
    return [
        name if template is None else f"{name}<{template}>"
        for name, template, _ in _definitions(source)
    ]


def signature(source, expression, symbol, defines):
    """Returns the Signature of a kernel.

    Arguments:
        source: the text that defines it; a kernel of a header has parameters without names.
        expression: the C++ expression that names it, such as "scale<float>".
        symbol: its name in the compiled code. If it is mangled, it has the exact types.
        defines: {macro: text}.

    Raises:
        ValueError: a parameter has a type that cannot be passed from Python.
    """
    name = re.sub(r"<.*", "", expression, flags=re.DOTALL).split("::")[-1].strip()
    written = next((found for title, _, found in _definitions(source) if title == name), None)
    texts = None if written is None else [_split_name(text) for text in _items(written)]
    if symbol.startswith("_Z"):
        types = _items(_argument_list(demangled(symbol)))
    elif texts is not None:
        types = [defined for defined, _ in texts]
    else:
        raise ValueError(f"the source defines no __global__ function {name}")
    names = (
        [title for _, title in texts] if texts and len(texts) == len(types) else [""] * len(types)
    )
    return Signature(
        expression, [_parameter(text, title, defines) for text, title in zip(types, names)]
    )


def _definitions(source):
    """Yields (name, template parameters or None, text of the parameters) of each kernel."""
    text = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    for match in _KERNEL.finditer(text):
        template = _TEMPLATE.search(text[: match.start()].rstrip().removesuffix("static").rstrip())
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield match[2], template and template[1], text[match.end() : end - 1]


def _argument_list(declaration):
    """Returns 'float*, int' for 'void scale<(int)4>(float*, int)'."""
    depth = 0
    for position in range(len(declaration) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(declaration[position], 0)
        if depth == 0:
            return declaration[position + 1 : -1]
    return ""


def _items(text):
    """Splits at the commas outside of brackets; [] for an empty list and for void."""
    items, depth = [""], 0
    for letter in text:
        depth += {"<": 1, "(": 1, "[": 1, ">": -1, ")": -1, "]": -1}.get(letter, 0)
        if letter == "," and not depth:
            items.append("")
        else:
            items[-1] += letter
    items = [item.split("=")[0].strip() for item in items]
    return [] if items in ([""], ["void"]) else items


def _split_name(text):
    """Returns ('const float*', 'x') for 'const float* x', and ('float *', 'x') for 'float x[]'."""
    if text.endswith("]"):
        text = re.sub(r"(\w+)\s*\[[^\]]*\]$", r"* \1", text)
    match = re.fullmatch(r"(.*[\s*&>])(\w+)", text, re.DOTALL)
    words = {"int", "float", "double", "char", "short", "long", "unsigned", "bool", "__restrict__"}
    if match is None or match[2] in words or match[1].strip() in ("const", ""):
        return text, ""
    return match[1].strip(), match[2]


def _parameter(text, name, defines):
    words = re.sub(r"\w+", lambda match: str(defines.get(match[0], match[0])), text)
    words = re.sub(r"\b(?:const|volatile|__restrict__|__restrict|restrict|struct)\b", " ", words)
    words = re.sub(r"\s*\*\s*", "*", " ".join(words.split())).replace("std::", "").strip()
    shown = re.sub(r"\s*\*", "*", " ".join(re.sub(r"__restrict(__)?", "", text).split()))
    base, stars, rest = words.partition("*")
    base = _ALIASES.get(base.strip(), base.strip())
    if stars and not rest:
        dtype = _SCALARS.get(base, (None, None))[1]
        if dtype is None and (vector := _VECTOR.match(base)):
            kind = vector[1]
            kind = {"longlong": "long long"}.get(kind.removeprefix("u"), kind.removeprefix("u"))
            dtype = _SCALARS["unsigned " * vector[1].startswith("u") + kind][1]
        return Parameter(name, shown, True, "P", dtype)
    if not stars and base in _SCALARS:
        return Parameter(name, shown, False, *_SCALARS[base])
    raise ValueError(
        f"the parameter {f'{shown} {name}'.rstrip()} cannot be passed from Python; parameters are "
        "numbers (bool, integers, float, double, __half, __nv_bfloat16) and pointers to them. Pass "
        "a struct by a pointer to a tensor"
    )
