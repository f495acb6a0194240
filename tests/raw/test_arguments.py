"""Tests what cuda_kernel does without NVRTC and without a GPU: it checks arguments."""

import struct

import pytest
import torch

from _jit_loader.raw.kernel import Kernel
from _jit_loader.raw.parameters import Signature


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ([1], TypeError, r"f\(float\*, float, long, bool\) takes 4 arguments, not 1"),
        ([7, 1.0, 2, True], TypeError, r"argument 1, float\*: must be a tensor or None, not int"),
        ([None, 1e300, 2, True], ValueError, r"argument 2, float: cannot hold 1"),
        ([None, 10**400, 2, True], ValueError, r"argument 2, float: cannot hold 1"),
        ([None, 1.0, 2.5, True], ValueError, r"argument 3, long: cannot hold 2.5: .* an integer"),
        ([None, 1.0, 2**63, True], ValueError, r"argument 3, long: cannot hold 92233720368547758"),
        ([None, 1.0, torch.zeros(1), True], TypeError, r"argument 3, long: must be a number, not"),
        ([None, 1.0, 1, 2], ValueError, r"argument 4, bool: must be a bool, not 2"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(arguments, error, said):
    signature = Signature("f", ["float*", "float", "long", "bool"])
    with pytest.raises(error, match=said):
        signature.pack(arguments, 0)
    for fits in (float("inf"), float("nan"), 3):
        signature.pack([None, fits, -(2**63), True], 0)
    assert signature.pack([None, 1, 2, True], 0) == signature.pack([None, 1.0, 2, 1], 0)


@pytest.mark.parametrize(
    ("version", "package"), [("99.1", "nvidia-cuda-nvrtc,"), ("12.99", "nvidia-cuda-nvrtc-cu12,")]
)
def test_without_nvrtc_an_error_says_how_to_install_it(folder, python, version, package):
    """Runs in a separate process, because PyTorch may have loaded NVRTC into this one."""
    script = (
        "import torch\n"
        f"torch.version.cuda = {version!r}\n"
        "torch.__path__ = ['/nowhere']  # it has no NVRTC in its wheels\n"
        "from _jit_loader.raw import kernel\n"
        "kernel.Kernel('__global__ void f() {}', None, 'f', {}, [], []).compile('sm_90a')\n"
    )
    finished = python("-c", script)
    assert finished.returncode != 0
    library = f"libnvrtc.so.{version.partition('.')[0]}"
    assert f"cuda_kernel needs NVRTC, and {library} cannot be loaded" in finished.stderr
    assert f"pip install {package}" in finished.stderr


@pytest.mark.parametrize(
    ("configuration", "error", "said"),
    [
        ((1, 2048), ValueError, "the block must be from"),
        ((0, 1), ValueError, "the grid must be from"),
        ((1, 2, 3, 4), TypeError, "a launch is kernel"),
        (7, TypeError, "a launch is kernel"),
        ((1.5, 1), TypeError, "the grid must be a number"),
        *(((1, 32, n), ValueError, "the bytes of shared memory must be") for n in (-1, 2**32, 2.5)),
    ],
)
def test_wrong_sizes_of_a_launch_are_refused(configuration, error, said):
    with pytest.raises(error, match=said):
        Kernel("", None, "f", {}, [], [])[configuration]


@pytest.mark.parametrize(
    "options",
    [
        *("-I headers", "--include-path=headers", "--include-path headers"),
        *("--pre-include=a.h", "-include a.h", "-include=a.h", "--use-pch=a", "-pch"),
    ],
)
def test_options_that_name_headers_are_refused(monkeypatch, options):
    for arguments in (options.split(), []):
        with pytest.raises(ValueError, match=r"the option -.* of NVRTC is not supported"):
            Kernel("", None, "f", {}, [], arguments)
        monkeypatch.setenv("NVRTC_APPEND_FLAGS", options)


@pytest.mark.parametrize(
    ("type_", "dtypes"),
    [
        ("float*", [torch.float32]),
        ("float2*", [torch.float32, torch.complex64]),
        ("double2 const*", [torch.float64, torch.complex128]),
        ("__half2*", [torch.float16]),
        *((type_, [torch.float32, torch.float64, torch.int16]) for type_ in ("uint4*", "void*")),
    ],
)
def test_a_pointer_takes_a_contiguous_tensor_of_its_dtype_on_the_device(type_, dtypes):
    signature, cpu = Signature("f", [type_]), -1  # the number that a tensor on the CPU has
    zeros = {dtype: torch.zeros(4, dtype=dtype) for dtype in [*dtypes, torch.int16]}
    for dtype in dtypes:
        parameter = torch.nn.Parameter(zeros[dtype], requires_grad=False)
        assert signature.pack([parameter], cpu) == struct.pack("Q", parameter.data_ptr())
    wrong = [zeros[dtypes[0]][::2], torch.zeros(1, dtype=torch.complex64).conj().imag]
    for tensor in [*wrong, *(zeros[dtype] for dtype in zeros.keys() - set(dtypes))]:
        with pytest.raises(ValueError, match=r"argument 1, .*: must be a contiguous tensor of"):
            signature.pack([tensor], cpu)
    with pytest.raises(ValueError, match=r"on the current device, cuda:0; it has .*, on cpu"):
        signature.pack([zeros[dtypes[0]]], 0)


def test_a_number_may_be_a_tensor():
    signature = Signature("f", ["long", "bool", "__half", "__nv_bfloat16"])
    numbers = [7, True, 0.5, 1.5]
    assert signature.pack(list(map(torch.tensor, numbers)), 0) == signature.pack(numbers, 0)


def test_arguments_are_aligned_as_in_c():
    signature = Signature(
        "f", ["bool", "double", "char", "int", "unsigned char", "float*", "short"]
    )
    expected = struct.pack("@?dbiBPh", True, 2.5, -1, 3, 4, 0, 5)
    packed = signature.pack([True, 2.5, -1, 3, 4, None, 5], 0)
    assert (packed, signature.size) == (expected, len(expected))
