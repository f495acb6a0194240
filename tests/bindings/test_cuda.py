"""Tests the ops with CUDA streams, CUDA graphs, several GPUs and very large tensors."""

import pytest
import torch

from bindings.add2 import add2
from bindings.my_op import my_op
from bindings.sigmoid import sigmoid
from tests.bindings.case import as_tuple, each_case

pytestmark = pytest.mark.gpu


@each_case
def test_ops_run_on_the_current_stream(case):
    inputs = case.arguments(case.large, torch.float32, "cuda")
    expected = as_tuple(case.op(*inputs)) + case.gradients(inputs)
    arguments = [torch.zeros_like(x) for x in inputs]
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        for x, late in zip(arguments, inputs):
            x.copy_(late)  # on another stream the op would still read zeros
        results = as_tuple(case.op(*arguments)) + case.gradients(arguments)
    stream.synchronize()
    assert all(map(torch.equal, results, expected))


@pytest.mark.parametrize("requires_grad", [False, True])
@each_case
def test_replayed_graph_computes_the_op(case, requires_grad):
    arguments = case.arguments(case.shapes[-1], torch.float32, "cuda")

    def call():
        if requires_grad:
            return case.gradients(arguments)
        return as_tuple(case.op(*arguments))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call()
    for x, other in zip(arguments, case.arguments(case.shapes[-1], torch.float32, "cuda")):
        x.copy_(other)
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(captured, call())


@each_case
def test_compile_with_reduce_overhead_has_the_same_gradients(case):
    torch._dynamo.reset()
    function = torch.compile(
        lambda *x: sum(y.square().sum() for y in as_tuple(case.op(*x))),
        fullgraph=True,
        mode="reduce-overhead",
    )
    for _ in range(4):
        arguments = case.arguments(case.shapes[-1], torch.float32, "cuda", requires_grad=True)
        torch.compiler.cudagraph_mark_step_begin()
        ours = torch.autograd.grad(function(*arguments), arguments)
        torch.testing.assert_close(ours, case.gradients(arguments), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@each_case
def test_second_device_can_be_used_while_the_first_is_current(case):
    arguments = case.arguments(case.large, torch.float32, "cuda:1")
    results = as_tuple(case.op(*arguments)) + case.gradients(arguments)
    assert torch.cuda.current_device() == 0
    first = [x.to("cuda:0") for x in arguments]
    for ours, expected in zip(results, as_tuple(case.op(*first)) + case.gradients(first)):
        assert ours.device == torch.device("cuda:1")
        torch.testing.assert_close(ours.to("cuda:0"), expected)
    if len(arguments) > 1:
        with pytest.raises(RuntimeError, match=r"cuda:1.*cuda:0"):
            case.op(arguments[0], *first[1:])


@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("op", [add2, my_op, sigmoid], ids=lambda op: op.__name__)
def test_more_than_2_31_elements_are_all_computed(op, offset):
    n = (1 << 31) + 3
    count = 1 if op is sigmoid else 2
    needed = (3 * count + 3) * 2 * (n + 1)
    if torch.cuda.mem_get_info()[0] < needed * 1.1:
        pytest.skip(f"needs {needed / 2**30:.0f} GiB of GPU memory")
    arguments = [
        torch.full((n + offset,), value, dtype=torch.bfloat16, device="cuda")[offset:]
        for value in (1.0, 2.0)[:count]
    ]
    arguments[0][-1] = 5
    for x in arguments:
        x.requires_grad_()
    last = [x[-9:].detach().clone().requires_grad_() for x in arguments]
    result, expected = op(*arguments), op(*last)
    grads = torch.autograd.grad(result, arguments, result.detach())
    expected_grads = torch.autograd.grad(expected, last, expected.detach())
    for whole, end in zip([result, *grads], [expected, *expected_grads]):
        assert torch.equal(whole[-9:].detach(), end.detach())
        assert bool((whole[:-1].detach() == end[0].detach()).all())


def test_launch_error_names_the_kernel_and_the_error():
    # add2 makes no bad launch. The check after a launch reports the thread's last CUDA error, so
    # the test causes an error of another CUDA function.
    a, host = torch.ones(3, device="cuda"), torch.ones(3)
    expected = a + a
    torch.cuda.cudart().cudaHostUnregister(host.data_ptr())
    with pytest.raises(RuntimeError, match=r"Add2.*cudaErrorHostMemoryNotRegistered"):
        add2(a, a)
    assert torch.equal(add2(a, a), expected)
