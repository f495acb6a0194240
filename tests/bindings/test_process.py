"""Tests the effects of an op's import on the process; each test starts a new process."""

import sys


def test_an_op_imports_no_other_package_and_no_dtensors(compiled, python):
    """Importing torch.distributed.tensor takes most of a second."""
    imported = python(
        "-c",
        "import sys, torch, jit_loader; jit_loader.load_op\n"
        "before = set(sys.modules)\n"
        "from bindings.add2 import add2\n"
        "assert not torch.cuda.is_initialized()\n"
        "print(*set(sys.modules) - before)\n"
        "x = torch.zeros(2, requires_grad=True)\n"
        "add2(x, x).sum().backward(); torch.func.grad(lambda x: add2(x, x).sum())(x)\n"
        "assert 'bindings.shared.sharding' not in sys.modules",
        check=True,
    ).stdout.split()
    allowed = {"bindings", "jit_loader", "_jit_loader", *sys.stdlib_module_names}
    assert not [name for name in imported if name.partition(".")[0] not in allowed]


def test_process_has_one_openmp_runtime_which_obeys_set_num_threads(compiled, python):
    before, one, three, *runtimes = python(
        "-c",
        "import os, torch\n"
        "from bindings.add2 import add2\n"
        "count = lambda: len(os.listdir('/proc/self/task'))\n"
        "torch.set_num_threads(1)\n"
        "a = torch.zeros(1 << 20); before = count()\n"
        "add2(a, a); one = count()\n"
        "torch.set_num_threads(3); add2(a, a); three = count()\n"
        "paths = {line.split()[-1] for line in open('/proc/self/maps')}\n"
        "print(before, one, three, *(p for p in paths if 'omp' in os.path.basename(p)))",
        check=True,
    ).stdout.split()
    assert int(one) == int(before)
    assert int(three) == int(before) + 2
    runtimes = [p for p in runtimes if any(n in p for n in ("libgomp", "libomp", "libiomp"))]
    assert len(runtimes) == 1
