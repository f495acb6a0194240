"""The kernels' exp, expm1, tanh, sigmoid and elu are within a few units in the last place."""

import platform
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.conftest import call

SOURCE = Path(__file__).parent / "functions.cpp"
FLOATS = {"float": np.float32, "double": np.float64}
# The types of the references; a long double has at least 11 bits more than a double.
WIDER = {"float": np.float64, "double": np.longdouble}


def elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# The reference, the largest error in units, and whether positive arguments are allowed.
FUNCTIONS = {
    "exp": (np.exp, 1.0, True),
    "expm1": (np.expm1, 1.2, False),
    "tanh": (np.tanh, 2.5, True),
    "sigmoid": (sigmoid, 2.7, True),
    "elu": (elu, 1.2, True),
}


# Without and with fused multiply-add and wide vectors.
@pytest.fixture(scope="module", params=[[], ["-march=native"]], ids=["baseline", "native"])
def library(request, library_of):
    return library_of(SOURCE, flags=request.param)


def result_of(library, function, kind, x):
    return call(getattr(library, f"{function}_{kind}"), np.empty_like(x), x)


def arguments(kind):
    """Returns numbers of every size, most of them below 2, some with e^x close to a power of 2."""
    dtype, random = FLOATS[kind], np.random.default_rng(0)
    x = np.concatenate(
        [
            2 ** random.uniform(np.log2(float(np.finfo(dtype).smallest_normal)), 7, 300_000),
            random.uniform(0, 2, 300_000),
            random.uniform(0, 85, 300_000),
            np.arange(0, 40, 0.25) * np.log(2),
        ]
    )
    return np.concatenate([x, -x])[np.abs(np.concatenate([x, -x])) < 85].astype(dtype)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_error_is_within_the_limit(library, function, kind):
    reference, limit, positive = FUNCTIONS[function]
    x = arguments(kind)
    x = x if positive else x[x <= 0]
    result = result_of(library, function, kind, x).astype(WIDER[kind])
    expected = reference(x.astype(WIDER[kind]))
    unit = np.spacing(np.abs(expected).astype(FLOATS[kind])).astype(WIDER[kind])
    assert (np.abs(result - expected) / unit).max() <= limit


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_special_values_are_exact(library, function, kind):
    reference, _, positive = FUNCTIONS[function]
    special = [0.0, -0.0, -np.inf, np.nan, -1e30] + ([np.inf, 1e30] if positive else [])
    x = np.array(special, FLOATS[kind])
    with np.errstate(over="ignore"):
        expected = reference(x)
    np.testing.assert_array_equal(result_of(library, function, kind, x), expected)


def test_tanh_keeps_the_sign_of_zero(library):
    result = result_of(library, "tanh", "float", np.array([0.0, -0.0], np.float32))
    assert np.signbit(result).tolist() == [False, True]


def test_every_loop_is_vectorised(vectorisation):
    # SSE2 lacks the 64-bit comparisons that the double versions need.
    march = ["-march=x86-64-v3"] if platform.machine() == "x86_64" else []
    report = vectorisation(SOURCE, *march)
    lines = {line.split(":")[1] for line in report.splitlines() if "loop vectorized" in line}
    assert len(lines) == SOURCE.read_text().count("\nLOOP("), report
