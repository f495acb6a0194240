"""The parameters of a kernel: their values are checked, and packed for a launch."""

import math
import struct

import torch


class Parameter:
    """A parameter of a kernel.

    code: its format character in the module struct. dtype: the dtype of the number, or of the
    tensor that is passed for a pointer; None for a pointer to any type.
    """

    def __init__(self, name, type, is_pointer, code, dtype):
        self.name, self.type, self.is_pointer = name, type, is_pointer
        self.code, self.dtype = code, dtype

    def limits(self):
        """Returns the smallest and the largest number."""
        if self.is_pointer or self.dtype == torch.bool:
            return 0, 1
        info = torch.finfo if self.dtype.is_floating_point else torch.iinfo
        return info(self.dtype).min, info(self.dtype).max

    def usual_type(self):
        """Returns the Python type whose values, within the limits, are packed as they are."""
        if self.is_pointer or self.dtype in (torch.bool, torch.float16, torch.bfloat16):
            return None
        return float if self.dtype.is_floating_point else int

    def checked(self, value, number, device):
        """Returns the value to pack. Raises a TypeError or ValueError for a wrong argument."""
        if self.is_pointer:
            return self._address(value, number, device)
        dtype = self.dtype
        if isinstance(value, torch.Tensor) or not hasattr(value, "__float__"):
            raise TypeError(f"{self._title(number)} must be a number, not {_kind(value)}")
        if dtype == torch.bool:
            if value not in (0, 1):
                raise ValueError(f"{self._title(number)} must be a bool, not {value!r}")
            return bool(value)
        low, high = self.limits()
        if dtype.is_floating_point:
            if not low <= value <= high and abs(value) < math.inf:
                raise ValueError(f"{self._title(number)} cannot hold {value!r}")
            if dtype == torch.bfloat16:  # struct has no code for it
                return torch.tensor(float(value), dtype=dtype).view(torch.uint16).item()
            return value
        if not hasattr(value, "__index__"):
            raise TypeError(f"{self._title(number)} must be an integer, not {value!r}")
        if not low <= value <= high:
            raise ValueError(f"{self._title(number)} must be from {low} to {high}, not {value!r}")
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
                f"device, cuda:{device}; launch it in "
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
        self._kinds = [(p.is_pointer, p.dtype, p.usual_type(), *p.limits()) for p in parameters]

    @classmethod
    def read(cls, kernel, rows):
        """Returns the signature whose rows() were stored."""
        dtypes = ((*row[:-1], row[-1] and getattr(torch, row[-1])) for row in rows)
        return cls(kernel, [Parameter(*row) for row in dtypes])

    def rows(self):
        """Returns the parameters as lists for JSON."""
        return [
            [p.name, p.type, p.is_pointer, p.code, p.dtype and str(p.dtype).removeprefix("torch.")]
            for p in self.parameters
        ]

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
            from _jit_loader.report.quantities import count

            raise TypeError(
                f"{self} takes {count(len(self.parameters), 'argument')}, but {len(arguments)} "
                f"{'was' if len(arguments) == 1 else 'were'} given"
            )
        values = []
        for value, (pointer, dtype, usual, low, high) in zip(arguments, self._kinds):
            # A fast check of the usual types. checked() handles other values, and names the fault.
            if pointer:
                if (
                    type(value) is torch.Tensor
                    and value.dtype is dtype
                    and value.get_device() == device
                    and value.is_contiguous()
                ):
                    values.append(value.data_ptr())
                    continue
            elif type(value) is usual and low <= value <= high:
                values.append(value)
                continue
            number = len(values) + 1
            values.append(self.parameters[number - 1].checked(value, number, device))
        return self.struct.pack(*values)

    def __str__(self):
        listed = ", ".join(f"{p.type} {p.name}".rstrip() for p in self.parameters)
        return f"{self.kernel}({listed})"
