"""Functions that write into an argument, torch_launch_add2 and two_norm's, check all arguments."""

import pytest
import torch

from bindings.two_norm import two_norm
from jit_loader import load_op
from tests.bindings.conftest import ROOT


@pytest.fixture
def add():
    return load_op("add2", project=ROOT).torch_launch_add2


@pytest.fixture
def norm():
    return load_op("two_norm", project=ROOT).two_norm


@pytest.fixture
def abc(device):
    a, b = torch.randn(2, 100, device=device)
    return a, b, torch.full((100,), 7.0, device=device)


@pytest.mark.parametrize("n", [0, 1, 99, 100])
def test_add_writes_the_first_n_elements(add, abc, n):
    a, b, c = abc
    assert add(c, a, b, n) is None
    assert torch.equal(c[:n], a[:n] + b[:n])
    assert torch.equal(c[n:], torch.full_like(c[n:], 7.0))
    c, b = c.view(4, 25), torch.cat([b, b]).view(2, 100)
    add(n=n, b=b, a=a, c=c)
    assert torch.equal(c.flatten()[:n], a[:n] + b[0, :n]), "any shape with enough elements"


@pytest.mark.parametrize(("n", "m"), [(0, 3), (1, 1), (3, 4), (300, 401)])
def test_norm_writes_one_element(norm, n, m, device):
    a, b = torch.randn(2, n * m + 5, device=device)
    c = torch.full((3,), 7.0, device=device)
    assert norm(a, b, c, n, m) is None
    assert c[0] == two_norm(a[: n * m], b[: n * m])
    assert c[1:].tolist() == [7.0, 7.0]
    norm(m=m, n=n, c=c[1:], b=b, a=a)
    assert c[1] == c[0]


@pytest.mark.parametrize("n", [100, 100_000])
def test_a_result_may_be_written_into_an_input(add, norm, n, device):
    a, b = torch.randn(2, n, device=device)
    into_a, into_b, twice = a.clone(), b.clone(), a.clone()
    add(into_a, into_a, b, n)
    add(into_b, a, into_b, n)
    add(twice, twice, twice, n)
    for result, expected in [(into_a, a + b), (into_b, a + b), (twice, a + a)]:
        assert torch.equal(result, expected)
    expected = two_norm(a, b)
    norm(a, b, a, 1, n)
    assert a[0] == expected


def test_neighbours_do_not_overlap(add, device):
    memory = torch.ones(200, device=device)
    add(memory[100:], memory[:100], memory[:100], 100)
    assert torch.equal(memory, torch.tensor([1.0, 2.0], device=device).repeat_interleave(100))


def test_backward_refuses_a_saved_tensor_that_was_written(add, norm):
    for function, sizes in [(add, (4,)), (norm, (2, 2))]:
        x = torch.randn(4, requires_grad=True)
        y = x.exp()  # saves its result
        function(y.detach(), y.detach(), y.detach(), *sizes)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_bad_arguments_are_refused_and_nothing_is_written(add, norm, abc, device):
    a, b, c = abc
    memory = torch.zeros(200, device=device)
    both = [
        (a[::2], b, c, RuntimeError, ["'a'", "contiguous", "[2]"]),
        (a, b[:50], c, RuntimeError, ["'b'", "50", "100"]),
        (a.double(), b, c, RuntimeError, ["'a'", "float64", "float32"]),
        (a, b.int(), c, RuntimeError, ["'b'", "int32", "float32"]),
        (a, b, c.half(), RuntimeError, ["'c'", "float16", "float32"]),
        (a, b.to("meta"), c, NotImplementedError, ["'b'", "meta"]),
        (a, [1.0], c, TypeError, ["'b'", "list"]),
        (a, None, c, TypeError, ["'b'", "must be Tensor, not None"]),
    ]
    cases = [(add, (c, a, b, 100), *error) for a, b, c, *error in both]
    cases += [(norm, (a, b, c, 10, 10), *error) for a, b, c, *error in both]
    cases += [
        (add, (c, a, b, -1), ValueError, ["'n'", "-1"]),
        (add, (c, a, b, 101), RuntimeError, ["'c'", "100", "101"]),
        (add, (c[:1].expand(100), a, b, 9), RuntimeError, ["'c'", "contiguous", "[0]"]),
        (add, (memory[:100], memory[1:101], b, 100), RuntimeError, ["'c'", "'a'", "overlap"]),
        (add, (memory[50:150], a, memory[:100], 100), RuntimeError, ["'c'", "'b'", "overlap"]),
        (norm, (a, b, c, -1, 5), ValueError, ["'n'", "-1"]),
        (norm, (a, b, c, 5, -2), ValueError, ["'m'", "-2"]),
        (norm, (a, b, c, 1 << 40, 1 << 40), ValueError, [str(1 << 40), "64 bits"]),
        (norm, (a, b, c, 101, 1), RuntimeError, ["'a'", "100", "101"]),
        (norm, (a, b, c[:0], 1, 1), RuntimeError, ["'c'", "0 elements"]),
        (norm, (a, b, c, 3.0, 3), TypeError, ["'n'", "float"]),
    ]
    for function, arguments, kind, parts in cases:
        with pytest.raises(kind) as caught:
            function(*arguments)
        name = {add: "torch_launch_add2", norm: "two_norm"}[function]
        assert all(part in str(caught.value) for part in [name, *parts]), caught.value
    assert torch.equal(c, torch.full_like(c, 7.0)), "nothing was written"
    assert not memory.any()


@pytest.mark.gpu
def test_mixed_devices_are_refused(add, norm):
    x = torch.zeros(3)
    with pytest.raises(RuntimeError, match=r"torch_launch_add2.*'c' is on cpu and 'b' on cuda"):
        add(x, x, x.cuda(), 1)
    with pytest.raises(RuntimeError, match=r"two_norm.*'a' is on cpu and 'b' on cuda"):
        norm(x, x.cuda(), x, 1, 3)
