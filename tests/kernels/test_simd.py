"""Vector loads and stores of 16-bit elements give the same values as scalar ones."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

SOURCE = Path(__file__).parent / "simd.cpp"
TYPES = ("Half", "BFloat16")


@pytest.fixture(scope="module", params=[[], ["-march=native"]], ids=["baseline", "native"])
def library(request, compiler, tmp_path_factory):
    path = tmp_path_factory.mktemp("simd") / "simd.so"
    command = [*compiler, "-O3", *request.param, "-shared", "-fPIC", SOURCE, "-o", path]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(path))


def call(library, function, x):
    """Returns the bits that the function writes."""
    out = np.empty(x.size, np.uint16)
    pointers = (ctypes.c_void_p(array.ctypes.data) for array in (out, x))
    getattr(library, function)(*pointers, ctypes.c_int64(x.size))
    return out


def values(kind, bits):
    if kind == "Half":
        return bits.view(np.float16)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def floats():
    """Returns floats of every sign, exponent and leading mantissa, also near rounding midpoints."""
    leading = np.arange(1 << 16, dtype=np.uint32) << 16
    trailing = (0, 1, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
    return np.concatenate([leading + np.uint32(bits) for bits in trailing]).view(np.float32)


@pytest.mark.parametrize("kind", TYPES)
def test_every_value_survives_a_load_and_a_store(library, kind):
    bits = np.arange(1 << 16, dtype=np.uint16)
    result = call(library, f"through_{kind}", bits)
    np.testing.assert_array_equal(values(kind, result), values(kind, bits))
    zeros = bits[values(kind, bits) == 0]
    assert result[zeros].tolist() == zeros.tolist(), "the signs of zeros differ"


@pytest.mark.parametrize("kind", TYPES)
def test_vector_and_scalar_conversions_round_alike(library, kind):
    x = floats()
    by_vectors, one_by_one = (call(library, f"{way}_{kind}", x) for way in ("vectors", "elements"))
    np.testing.assert_array_equal(values(kind, by_vectors), values(kind, one_by_one))
