"""The parameters of a kernel, from the types that the compiler found; arguments are checked."""

import re
import struct

import torch

from _jit_loader.report.text import count

# {C++ type: (its format character in the module struct, the dtype of a tensor of it)}
_NUMBERS = {
    "bool": ("?", torch.bool),
    "char": ("b", torch.int8),
    "signed char": ("b", torch.int8),
    "unsigned char": ("B", torch.uint8),
    "short": ("h", torch.int16),
    "unsigned short": ("H", torch.uint16),
    "int": ("i", torch.int32),
    "unsigned int": ("I", torch.uint32),
    "long": ("q", torch.int64),
    "unsigned long": ("Q", torch.uint64),
    "long long": ("q", torch.int64),
    "unsigned long long": ("Q", torch.uint64),
    "float": ("f", torch.float32),
    "double": ("d", torch.float64),
    "__half": ("e", torch.float16),
    "__nv_bfloat16": ("H", torch.bfloat16),
}
# The types of arguments that are packed unchanged, if they are neither float nor int.
_USUAL = {"bool": bool, "__nv_bfloat16": ()}
_VECTORS = {  # the dtypes of tensors for pointers to these types; to others, any
    "float2": (torch.float32, torch.complex64),
    "float4": (torch.float32,),
    "double2": (torch.float64, torch.complex128),
    "__half2": (torch.float16,),
    "__nv_bfloat162": (torch.bfloat16,),
}


class Signature:
    """The parameters of a kernel. types: their C++ types, such as 'float const*'.

    Raises ValueError if Python cannot pass one of them.
    """

    def __init__(self, kernel, types):
        self.kernel, self.types = kernel, types
        self._parameters = list(map(_parameter, types))
        self._struct = struct.Struct(_aligned(code for code, _, _ in self._parameters))
        self.size = self._struct.size

    def pack(self, arguments, device):
        """Returns the bytes of the arguments for a device. Raises for a wrong argument."""
        if len(arguments) != len(self.types):
            expected = count(len(self.types), "argument")
            raise TypeError(f"{self} takes {expected}, not {len(arguments)}")
        values = []
        for value, (_, usual, dtypes) in zip(arguments, self._parameters):
            # A fast check of the usual arguments. The others take a slower one, which names faults.
            if isinstance(value, usual):
                if usual is not torch.Tensor:
                    values.append(value)
                    continue
                if (
                    (dtypes is None or value.dtype in dtypes)
                    and value.get_device() == device
                    and value.is_contiguous()
                    and not (value.is_conj() or value.is_neg())
                ):
                    values.append(value.data_ptr())
                    continue
            values.append(self._checked(len(values), value, device))
        try:
            return self._struct.pack(*values)
        except (struct.error, OverflowError):  # a number is too large
            for number, (_, usual, _) in enumerate(self._parameters):
                if usual is not torch.Tensor:
                    self._checked(number, arguments[number], device)
            raise

    def _checked(self, number, value, device):
        """Returns the value to pack for an unusual argument. Raises for a wrong one."""
        code, usual, dtypes = self._parameters[number]
        title = f"argument {number + 1}, {self.types[number]}:"
        if usual is not torch.Tensor:
            return _number(title, value, code, dtypes)
        if value is None:
            return 0
        raise _wrong_tensor(title, value, dtypes, device)

    def __str__(self):
        return f"{self.kernel}({', '.join(self.types)})"


def _parameter(text):
    """Returns (the format character, the usual type of its arguments, dtypes) of a parameter.

    dtypes: those of the tensors that a pointer takes, None for any; or the number's.
    """
    is_pointer = text.endswith("*")
    base = re.sub(r" (?:const|volatile)\b", "", text.removesuffix("*"))
    if base.endswith("*") or not (is_pointer or base in _NUMBERS):
        raise ValueError(
            f"a parameter of the type {text} cannot be passed from Python; parameters are numbers "
            "(bool, integers, float, double, __half, __nv_bfloat16) and pointers to them. Pass a "
            "struct by a pointer to a tensor"
        )
    code, dtype = _NUMBERS.get(base, ("Q", None))
    if is_pointer:
        return "Q", torch.Tensor, _VECTORS.get(base, dtype and (dtype,))
    usual = float if dtype.is_floating_point else int
    return code, _USUAL.get(base, usual), (dtype,)


def _aligned(codes):
    """Returns the format of numbers that are aligned, as in C.

    Without "<", struct would turn large numbers into infinity.
    """
    found = "<"
    for code in codes:
        size = struct.calcsize(f"<{code}")
        found += "x" * (-struct.calcsize(found) % size) + code
    return found


def _number(title, value, code, dtypes):
    """Returns a number to pack."""
    if isinstance(value, torch.Tensor) and value.dim() == 0 and value.device.type == "cpu":
        value = value.item()
    if isinstance(value, torch.Tensor) or not hasattr(value, "__float__"):
        raise TypeError(f"{title} must be a number, not {type(value).__name__}")
    if code == "?" and value not in (0, 1):
        raise ValueError(f"{title} must be a bool, not {value!r}")
    if dtypes == (torch.bfloat16,):  # struct has no code for it
        return torch.tensor(float(value), dtype=torch.bfloat16).view(torch.uint16).item()
    try:
        struct.pack(f"<{code}", value)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"{title} cannot hold {value!r}: {error}") from None
    return value


def _wrong_tensor(title, value, dtypes, device):
    """Returns the error for an argument that is not a tensor that the kernel can use."""
    if not isinstance(value, torch.Tensor):
        return TypeError(f"{title} must be a tensor or None, not {type(value).__name__}")
    expected = " or ".join(map(str, dtypes)) if dtypes else "any dtype"
    text = (
        f"{title} must be a contiguous tensor of {expected} on the current device, cuda:{device}; "
        f"it has the dtype {value.dtype}, the shape {tuple(value.shape)} and the strides "
        f"{value.stride()}, on {value.device}"
    )
    # Its memory holds other numbers. A copy is not passed, because the kernel may write to it.
    if value.is_conj() or value.is_neg():
        text += ", and is conjugated or negated lazily: pass .resolve_conj() or .resolve_neg()"
    return ValueError(text)
