"""Streams, graphs, devices and sizes that only a GPU has."""

import pytest
import torch

from bindings.add2 import add2

pytestmark = pytest.mark.gpu


def test_current_stream():
    a, b = torch.zeros(1 << 20, device="cuda"), torch.ones(1 << 20, device="cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        a.fill_(2)  # late: on another stream add2 would still read zeros
        c = add2(a, b)
    stream.synchronize()
    assert torch.equal(c, torch.full_like(c, 3))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_graph_capture(requires_grad):
    a = torch.zeros(1000, device="cuda", requires_grad=requires_grad)
    b = torch.ones(1000, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        add2(a, b)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = add2(a, b)
    with torch.no_grad():
        a.fill_(5)
    graph.replay()
    assert torch.equal(c.detach(), torch.full_like(b, 6))


def test_compile_reduce_overhead():
    function = torch.compile(
        lambda a, b: add2(a, b).square(), fullgraph=True, mode="reduce-overhead"
    )
    for _ in range(4):
        a, b = torch.randn(2, 1000, device="cuda")
        a.requires_grad_()
        torch.compiler.cudagraph_mark_step_begin()
        function(a, b).sum().backward()
        torch.testing.assert_close(a.grad, 2 * (a + b).detach())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_second_device_while_the_first_is_current():
    a, b = torch.randn(2, 1000, device="cuda:1")
    c = add2(a, b)
    assert c.device == a.device
    assert torch.cuda.current_device() == 0
    assert torch.equal(c, a + b)
    with pytest.raises(RuntimeError, match=r"cuda:1.*cuda:0"):
        add2(a, b.to("cuda:0"))


@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "unaligned"])
def test_more_than_2_31_elements(offset):
    n = (1 << 31) + 3
    needed = 3 * 2 * (n + 1)
    if torch.cuda.mem_get_info()[0] < needed * 1.1:
        pytest.skip(f"needs {needed / 2**30:.0f} GiB of GPU memory")
    a = torch.ones(n + offset, dtype=torch.bfloat16, device="cuda")[offset:]
    b = torch.full((n + offset,), 2.0, dtype=torch.bfloat16, device="cuda")[offset:]
    a[-1] = 5
    c = add2(a, b)
    assert c[-1] == 7
    assert c[0] == 3
    c[-1] = 3
    assert bool((c == 3).all())


def test_launch_error_names_the_kernel_and_the_error():
    # add2 itself makes no bad launch; the check behind one reports the thread's last CUDA error,
    # whoever made it.
    a, host = torch.ones(3, device="cuda"), torch.ones(3)
    expected = a + a
    torch.cuda.cudart().cudaHostUnregister(host.data_ptr())
    with pytest.raises(RuntimeError, match=r"Add2.*cudaErrorHostMemoryNotRegistered"):
        add2(a, a)
    assert torch.equal(add2(a, a), expected)
