"""A kernel's parameters: parsed from the source, checked and packed for a launch."""

import re
import struct
from typing import NamedTuple

import torch

from _jit_loader.report.symbols import demangled

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TEMPLATE = re.compile(r"template\s*<([^<>]*)>\s*$")
_KERNEL = re.compile(
    r"\b__global__\b([^;{}()]*(?:__launch_bounds__\s*\([^()]*\))?[^;{}()]*?)\b(\w+)\s*\("
)

# {C++ type: (the code of struct, PyTorch's dtype of an array of them)}
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


class Parameter(NamedTuple):
    """A parameter. code: struct's. dtype: of the tensor or number; None for a pointer to any."""

    name: str
    type: str
    is_pointer: bool
    code: str
    dtype: torch.dtype | None

    def packable(self, value, number, device):
        """Returns the value to pack. Raises TypeError or ValueError if the argument is wrong."""
        if self.is_pointer:
            return self._address(value, number, device)
        dtype = self.dtype
        if isinstance(value, torch.Tensor) or not hasattr(value, "__float__"):
            raise TypeError(f"{self._title(number)} must be a number, not {_kind(value)}")
        if dtype == torch.bool:
            if value not in (0, 1):
                raise ValueError(f"{self._title(number)} must be a bool, not {value!r}")
            return bool(value)
        if dtype.is_floating_point:
            if dtype == torch.bfloat16:  # struct has no code for it
                return torch.tensor(float(value), dtype=dtype).view(torch.uint16).item()
            return value
        if not hasattr(value, "__index__"):
            raise TypeError(f"{self._title(number)} must be an integer, not {value!r}")
        limits = torch.iinfo(dtype)
        if not limits.min <= value <= limits.max:
            raise ValueError(
                f"{self._title(number)} must be from {limits.min} to {limits.max}, not {value!r}"
            )
        return value

    def _address(self, value, number, device):
        if value is None:
            return 0
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{self._title(number)} must be a tensor or None, not {_kind(value)}")
        if value.device.type != "cuda":
            raise ValueError(
                f"{self._title(number)} is on the device {value.device}, and the kernel runs on "
                f"cuda:{device}; move it there: .cuda()"
            )
        if value.device.index != device:
            raise ValueError(
                f"{self._title(number)} is on {value.device}, and the kernel runs on the current "
                f"device and stream, those of cuda:{device}; launch it in "
                f"`with torch.cuda.device({value.device.index}):`"
            )
        if self.dtype is not None and value.dtype != self.dtype:
            raise TypeError(
                f"{self._title(number)} must have the dtype {self.dtype}, not {value.dtype}"
            )
        if not value.is_contiguous():
            raise ValueError(
                f"{self._title(number)} must be contiguous, and has the shape "
                f"{tuple(value.shape)} with the strides {value.stride()}; pass .contiguous()"
            )
        return value.data_ptr()

    def _title(self, number):
        return f"argument {number}, {f'{self.type} {self.name}'.rstrip()}:"


def _kind(value):
    return f"a tensor of {value.dtype}" if isinstance(value, torch.Tensor) else repr(value)


class Signature:
    """The parameters of a kernel, and the layout of their values in a launch."""

    def __init__(self, kernel, parameters):
        self.kernel = kernel
        self.parameters = parameters
        self.struct = struct.Struct("".join(["@", *(p.code for p in parameters)]))
        self._pointers = [p.is_pointer for p in parameters]
        self._dtypes = [p.dtype for p in parameters]

    def layout(self):
        """Returns [(offset, size)] of the parameters."""
        found, codes = [], "@"
        for parameter in self.parameters:
            codes += parameter.code
            size = struct.calcsize(parameter.code)
            found.append((struct.calcsize(codes) - size, size))
        return found

    def pack(self, arguments, device):
        """Returns the bytes of the arguments, checked."""
        if len(arguments) != len(self.parameters):
            raise TypeError(
                f"{self} takes {len(self.parameters)} arguments, and {len(arguments)} were given"
            )
        values = []
        for value, pointer, dtype in zip(arguments, self._pointers, self._dtypes):
            # The usual right arguments; any other goes through all checks, which name the fault.
            if pointer:
                if (
                    type(value) is torch.Tensor
                    and value.dtype is dtype
                    and value.get_device() == device
                    and value.is_contiguous()
                ):
                    values.append(value.data_ptr())
                    continue
            elif type(value) is float and dtype in (torch.float32, torch.float64):
                values.append(value)
                continue
            number = len(values) + 1
            values.append(self.parameters[number - 1].packable(value, number, device))
        try:
            return self.struct.pack(*values)
        except (OverflowError, struct.error) as error:
            raise ValueError(f"{self}: a number is out of the range of its type: {error}") from None

    def __str__(self):
        listed = ", ".join(f"{p.type} {p.name}".rstrip() for p in self.parameters)
        return f"{self.kernel}({listed})"


def kernel_names(source):
    """Returns the names of the __global__ functions that a source defines, templates left out."""
    return [name for name, template, _ in _definitions(source) if template is None]


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
    """Yields (name, template parameters or None, the text of its parameters) of the kernels."""
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
    """Returns ('const float*', 'x') for 'const float* __restrict__ x', and for 'x[]'."""
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
