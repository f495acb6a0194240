"""The headers of the C and C++ library that cuda_kernel's sources may include, without g++."""

import os

from _jit_loader.cuda.headers import BUILT_IN

_INTEGERS = "typedef long intptr_t, intmax_t; typedef unsigned long uintptr_t, uintmax_t;\n"
_INTEGERS += "".join(
    f"typedef {sign} {kind} {name}{bits}_t, {name}_least{bits}_t, {name}_fast{bits}_t;\n"
    for kind, bits in (("char", 8), ("short", 16), ("int", 32), ("long", 64))
    for sign, name in (("signed", "int"), ("unsigned", "uint"))
)
_LIMITS_OF_FLOATS = """\
#pragma once
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1p-126f
#define FLT_EPSILON 0x1p-23f
#define DBL_MAX 0x1.fffffffffffffp1023
#define DBL_MIN 0x1p-1022
#define DBL_EPSILON 0x1p-52
"""
OF_C = {
    **dict.fromkeys((*BUILT_IN, "stddef.h"), "#pragma once\n"),
    **dict.fromkeys(("cfloat", "float.h"), _LIMITS_OF_FLOATS),
    "stdint.h": f"#pragma once\n{_INTEGERS}",
    "cstdint": f"#pragma once\n#include <stdint.h>\nnamespace std {{\n{_INTEGERS}}}\n",
    "cstddef": "#pragma once\nnamespace std { using ::size_t; using ::ptrdiff_t; }\n",
}
_OF_CCCL = """\
#pragma once
#include <cuda/std/{}>
namespace cuda {{ namespace std {{}} }}
namespace std {{ using namespace cuda::std; }}
"""


def of_cccl(folders):
    """Returns {name: text} of the headers of the C++ library that cuda_kernel may include.

    They are CCCL's, of cuda/std. folders: of CUDA's headers.
    """
    paths = (os.path.join(folder, "cuda", "std") for folder in folders)
    path = next(filter(os.path.isdir, paths), None)
    names = {name for name in os.listdir(path) if name[0] != "_"} if path else set()
    return {name: _OF_CCCL.format(name) for name in names - OF_C.keys()}
