"""Vector loads and stores of 16-bit elements give the same values as scalar ones."""

import numpy as np
import pytest

from tests.kernels.conftest import call

TYPES = ("Half", "BFloat16")


@pytest.fixture(scope="module", params=[[], ["-march=native"]], ids=["baseline", "native"])
def bits_of(request, library_of):
    """Returns a function that returns the bits that a function of the library writes."""
    library = library_of("tests/kernels/simd.cpp", flags=request.param)
    return lambda function, x: call(library[function], np.empty(x.size, np.uint16), x)


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
def test_every_value_survives_a_load_and_a_store(bits_of, kind):
    bits = np.arange(1 << 16, dtype=np.uint16)
    result = bits_of(f"through_{kind}", bits)
    np.testing.assert_array_equal(values(kind, result), values(kind, bits))
    zeros = bits[values(kind, bits) == 0]
    assert result[zeros].tolist() == zeros.tolist(), "the signs of zeros differ"


@pytest.mark.parametrize("kind", TYPES)
def test_vector_and_scalar_conversions_round_alike(bits_of, kind):
    x = floats()
    by_vectors, one_by_one = (bits_of(f"{way}_{kind}", x) for way in ("vectors", "elements"))
    np.testing.assert_array_equal(values(kind, by_vectors), values(kind, one_by_one))
