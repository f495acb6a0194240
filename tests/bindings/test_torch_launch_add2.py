"""torch_launch_add2 writes into an argument, after it has checked all its arguments."""

import pytest
import torch


@pytest.fixture
def launch(compiled):
    return compiled.torch_launch_add2


@pytest.fixture
def abc(device):
    a, b = torch.randn(2, 100, device=device)
    return torch.full((100,), 7.0, device=device), a, b


@pytest.mark.parametrize("n", [0, 1, 99, 100])
def test_writes_the_first_n_elements(launch, abc, n):
    c, a, b = abc
    assert launch(c, a, b, n) is None
    assert torch.equal(c[:n], a[:n] + b[:n])
    assert torch.equal(c[n:], torch.full_like(c[n:], 7.0))


def test_arguments_may_be_passed_by_name(launch, abc):
    c, a, b = abc
    launch(n=100, b=b, a=a, c=c)
    assert torch.equal(c, a + b)


def test_any_shape_with_enough_elements_is_accepted(launch, device):
    c, a, b = (
        torch.empty(2, 3, device=device),
        torch.randn(6, device=device),
        torch.randn(7, 1, device=device),
    )
    launch(c, a, b, 6)
    assert torch.equal(c.flatten(), a + b.flatten()[:6])


@pytest.mark.parametrize("which", ["a", "b", "both"])
def test_output_may_be_an_input(launch, abc, which):
    _, a, b = abc
    if which == "both":
        b = a
    expected = a + b
    c = b if which == "b" else a
    launch(c, a, b, 100)
    assert torch.equal(c, expected)


def test_backward_refuses_a_saved_tensor_that_the_launch_has_changed(launch):
    x = torch.randn(4, requires_grad=True)
    y = x.exp()  # saves its result
    launch(y.detach(), y.detach(), y.detach(), 4)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_bad_arguments_are_refused_and_nothing_is_written(launch, abc, device):
    c, a, b = abc
    memory = torch.zeros(200, device=device)
    cases = [
        ((c, a, b, -1), ValueError, ["'n'", "-1"]),
        ((c, a, b, 101), RuntimeError, ["'c'", "100", "101"]),
        ((memory, a, b[:50], 100), RuntimeError, ["'b'", "50", "100"]),
        ((c.double(), a, b, 9), RuntimeError, ["'c'", "Double", "Float"]),
        ((c, a.half(), b, 9), RuntimeError, ["'a'", "Half", "Float"]),
        ((c, a, b.int(), 9), RuntimeError, ["'b'", "Int", "Float"]),
        ((c, a[::2], b, 9), RuntimeError, ["'a'", "contiguous", "[2]"]),
        ((c[:1].expand(100), a, b, 9), RuntimeError, ["'c'", "contiguous", "[0]"]),
        ((memory[:100], memory[1:101], b, 100), RuntimeError, ["'c'", "'a'", "overlap"]),
        ((memory[50:150], a, memory[:100], 100), RuntimeError, ["'c'", "'b'", "overlap"]),
        ((c, a, b.to("meta"), 9), NotImplementedError, ["'b'", "meta"]),
    ]
    for arguments, kind, parts in cases:
        with pytest.raises(kind) as caught:
            launch(*arguments)
        for part in ["torch_launch_add2", *parts]:
            assert part in str(caught.value)
    assert torch.equal(c, torch.full_like(c, 7.0)), "nothing was written"


def test_neighbours_do_not_overlap(launch, device):
    memory = torch.ones(200, device=device)
    launch(memory[100:], memory[:100], memory[:100], 100)
    assert torch.equal(memory, torch.tensor([1.0, 2.0], device=device).repeat_interleave(100))


@pytest.mark.parametrize("bad", [[1.0], None, 3])
def test_argument_that_is_not_a_tensor_is_refused(launch, bad):
    x = torch.zeros(3)
    with pytest.raises(TypeError, match="torch_launch_add2"):
        launch(x, bad, x, 1)


@pytest.mark.gpu
def test_mixed_devices_are_refused(launch):
    x = torch.zeros(3)
    with pytest.raises(RuntimeError, match=r"torch_launch_add2.*'c' is on cpu and 'b' on cuda"):
        launch(x, x, x.cuda(), 1)
