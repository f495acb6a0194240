"""measure times a function, compares it with a reference, and prints one line."""

import functools
import re
import time

import pytest
import torch

import jit_loader
from _jit_loader.measure import measure, timing

TIME = r"[\d.]+ [mun]?s \(95%: [\d.]+-[\d.]+\)"
RATE = r"[\d.]+ [kMGT]?B/s, [\d,]+% of this CPU's copy"


def matches(pattern, measured):
    return re.fullmatch(pattern, str(measured)) is not None


@pytest.fixture
def tensors():
    torch.manual_seed(0)
    return torch.randn(2, 100, 3)


def test_line_has_the_time_the_rate_the_reference_and_the_error(tensors):
    def twice(x):
        return x + x

    found = jit_loader.measure(twice, tensors[0], reference=lambda x: 2 * x)
    assert matches(rf"twice  {TIME}  {RATE}  [\d.]+x lambda  max error 0", found)
    assert found.interval[0] <= found.seconds <= found.interval[1]
    assert found.bandwidth == pytest.approx(2 * tensors[0].nbytes / found.seconds)
    found = jit_loader.measure(torch.add, *tensors, reference=torch.add, flops=300)
    assert matches(
        rf"torch\.add  {TIME}  [\d.]+ [kMGT]?FLOP/s  {RATE}  [\d.]+x torch\.add  max error 0", found
    )


def test_function_that_sleeps_has_no_rate_and_takes_its_time():
    found = measure(time.sleep, 0.001)
    assert matches(rf"sleep  {TIME}", found)
    assert found.seconds >= 0.001
    assert (found.reference, found.bandwidth, found.change) == (None, None, "")
    assert matches(rf"sleep  {TIME}", measure(functools.partial(time.sleep, 0.001)))


def test_bytes_are_given_or_those_of_arguments_and_results_once(tensors):
    a, b = tensors
    whole = tensors.nbytes

    def rate(function, *arguments, **options):
        found = measure(function, *arguments, **options)
        return round(found.bandwidth * found.seconds)

    assert rate(lambda *_: None, a, b) == whole
    assert rate(lambda x, _: x, a, {"b": b}) == whole, "the result is an argument"
    assert rate(lambda x: x[::2], a[::2]) == a.nbytes // 2
    assert rate(lambda x: x, torch.ones(1).expand(1000)) == 4
    assert rate(lambda x: x, a, bytes=17) == 17
    assert measure(lambda: a).bandwidth is None, "what it reads is not known"
    assert not measure(torch.clone, torch.empty(0)).bandwidth


def with_nan(x):
    return x.index_fill(0, torch.tensor(7), float("nan"))


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda x: x + 1, r"NUMBER at \[\d+, \d\], REF NUMBER \(wrong elements: 300 of 300\)"),
        (with_nan, r"nan at \[7, 0\], REF NUMBER \(wrong elements: 3 of 300\)"),
        (lambda x: x[:50], r"shape torch\.Size\(\[50, 3\]\), REF torch\.Size\(\[100, 3\]\)"),
        (lambda x: x.double(), r"dtype torch\.float64, REF torch\.float32"),
        (lambda x: (x, x), r"2 results, REF 1"),
    ],
    ids=["values", "nan", "shape", "dtype", "results"],
)
def test_wrong_result_is_said_first(tensors, change, wrong):
    def negated(x):
        return change(-x)

    found = measure(negated, tensors[0], reference=torch.neg)
    assert str(found).startswith(f"negated IS WRONG: {found.wrong}  ")
    pattern = wrong.replace("REF", r"torch\.neg has").replace("NUMBER", r"[-\d.]+")
    assert re.fullmatch(pattern, found.wrong)
    assert "max error" not in str(found)


def test_rounding_is_an_error_in_eps_and_not_wrong(tensors):
    def rounded(x):
        result = x.clone()
        result[5, 1] *= 1 + 3e-7
        return result

    found = measure(rounded, tensors[0], reference=torch.clone)
    assert found.wrong == ""
    assert 0 < found.error <= 3
    assert found.index == "[5, 1]"
    assert re.search(r"max error [\d.]+ eps at \[5, 1\]$", str(found))


def test_error_near_zero_is_relative_to_the_mean_magnitude():
    """A sum of large numbers may cancel to a small one, whose error is that of the large ones."""
    expected = torch.tensor([1.0, 1.0, 1e-9])
    off = torch.tensor([0.0, 0.0, 1e-7])
    assert measure(lambda x: x + off, expected, reference=lambda x: x).error < 3


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.float8_e4m3fn])
def test_every_dtype_is_compared(dtype):
    x = torch.tensor([0.0, 1.0, 1.0, 0.0]).to(dtype)
    assert measure(torch.clone, x, reference=lambda x: x).error == 0
    wrong = measure(lambda x: (x.to(torch.cfloat) == 0).to(x.dtype), x, reference=lambda x: x).wrong
    assert "(wrong elements: 4 of 4)" in wrong


def test_equal_infinities_and_nans_are_no_error():
    x = torch.tensor([float("inf"), float("nan"), 1.0])
    assert measure(torch.clone, x, reference=lambda x: x).error == 0
    assert measure(torch.neg, x, reference=lambda x: x).index == "[0]"


def test_integers_that_are_one_float_are_compared():
    assert measure(lambda x: x + 1, torch.tensor([1 << 62]), reference=lambda x: x).wrong


def test_results_are_numbers_or_nested(tensors):
    a, b = tensors
    found = measure(lambda a, b: (a, {"sum": 1.0}), a, b, reference=lambda a, b: [a, 1.5])
    assert found.wrong.startswith("result 1: 1, lambda has 1.5 (wrong elements: 1 of 1)")
    assert measure(lambda: (), reference=lambda: ()).error == 0
    assert not measure(lambda: {"x": 1, "y": 2}, reference=lambda: {"y": 2, "x": 1}).wrong


def test_wrong_result_counts_more_than_a_larger_error_of_rounding(tensors):
    x = tensors[0]

    def rounded_with_wrong_indices(x):
        return x * (1 + 3e-7), torch.ones(3, dtype=torch.int64)

    found = measure(
        rounded_with_wrong_indices, x, reference=lambda x: (x, torch.zeros(3, dtype=torch.int64))
    )
    assert found.wrong.startswith("result 1: 1 at [0]")


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ([torch.ones(3)], {}, "measure: Tensor cannot be called; write measure(function, argument"),
        ([set], {"reference": set}, "measure: set returns set, not dense tensors or numbers"),
        ([list, torch.empty(3, device="meta")], {}, "measure: a tensor is on meta; it times"),
    ],
)
def test_errors_name_what_is_missing(arguments, options, error):
    with pytest.raises((TypeError, ValueError), match=re.escape(error)):
        measure(*arguments, **options)


def test_copy_bandwidth_is_measured_once_and_kept(monkeypatch):
    found = timing.copy_bandwidth(torch.device("cpu"))
    monkeypatch.setattr(timing, "in_turn", None)  # nothing is measured
    assert timing.copy_bandwidth(torch.device("cpu")) == found


def test_functions_take_turns():
    called = []
    functions = [lambda: called.append("a"), lambda: called.append("b")]
    samples = timing.in_turn(functions, torch.device("cpu"))
    blocks = [name for name, before in zip(called, [None, *called]) if name != before]
    assert blocks == ["a", "b"] * (len(blocks) // 2)
    assert len(samples[0]) == len(samples[1]) >= 7


def test_interval_has_the_median_with_a_probability_of_95_percent():
    assert timing.interval(range(7)) == (0, 6)
    assert timing.interval(range(20)) == (5, 14)
    assert timing.interval(range(100)) == (39, 60)


@pytest.mark.gpu
@pytest.mark.parametrize("has_triton", [True, False])
def test_on_a_gpu_the_inputs_come_from_memory(has_triton, monkeypatch):
    monkeypatch.setattr(timing, "SECONDS", {"cuda": 0.1})
    monkeypatch.setattr(timing, "LARGE_BYTES", 256 << 20)
    if not has_triton:
        monkeypatch.setattr(timing.importlib.util, "find_spec", lambda name: None)
    x = torch.ones(1 << 20, device="cuda")
    found = measure(torch.neg, x, reference=lambda x: -x)
    assert re.search(r", \d+% of this GPU's copy  [\d.]+x lambda  max error 0$", str(found))
    assert found.bandwidth < 1.2 * found.copy_bandwidth, "8 MB would be faster from the L2 cache"
