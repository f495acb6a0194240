"""The host code of an object tells whether an edit was one of device code."""

import subprocess

import pytest

from _jit_loader.key import toolchain
from _jit_loader.live.host_code import host_code, host_digest

pytestmark = pytest.mark.nvcc

SOURCE = """\
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__ inline
#else
#define HOST_DEVICE inline
#endif
struct Add { template <class T> HOST_DEVICE T operator()(T a) const { return a + 11; } };
HOST_DEVICE float of_the_kernel(float x) { return x * 3; }
HOST_DEVICE float ignored(float x) { return x * 5; }
HOST_DEVICE float inner(float x) { return x * 7; }
HOST_DEVICE float outer(float x) { return inner(x); }
template <class F> __global__ void kernel(float* p) { *p = F()(of_the_kernel(p[1])); }
void launch(float* p) { kernel<Add><<<1, 1>>>(p); }
float host(float x) { ignored(x); return outer(x); }
"""


def compiled(folder, text):
    """Returns the path of the object."""
    (folder / "a.cu").write_text(text)
    command = [toolchain.nvcc_path(), "-O3", "-std=c++17", "-arch=sm_80", "-c", "a.cu", "-o", "a.o"]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return folder / "a.o"


@pytest.mark.slow
def test_edits_of_formulas_for_kernels_leave_the_host_code_of_the_object(tmp_path):
    source = str(tmp_path / "a.cu")
    command = ["nvcc", "-std=c++17", "-gencode=arch=compute_80,code=sm_80", "-c", source]
    digest, text = (
        host_digest(compiled(tmp_path, SOURCE)),
        host_code(source, {source: SOURCE}, command),
    )
    for old, new, of_device in [
        ("a + 11", "a + 12", True),
        ("x * 3", "x * 4", True),
        ("x * 7", "x * 8", False),
    ]:
        after = SOURCE.replace(old, new)
        same = host_code(source, {source: after}, command) == text
        assert same == of_device, old
        assert (host_digest(compiled(tmp_path, after)) == digest) == of_device, old
