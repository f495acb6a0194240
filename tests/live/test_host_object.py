"""The object of a .cu file shows which functions its host code has."""

import subprocess

import pytest

from _jit_loader.key import toolchain
from _jit_loader.live.host_code import function_words, host_digest, skeletons

pytestmark = pytest.mark.nvcc

SOURCE = """\
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__ inline __attribute__((noipa))
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
float host(float x) { ignored(x); return sizeof(of_the_kernel(x)) + outer(x); }
"""


def compiled(folder, text):
    """Returns the path of the object."""
    (folder / "a.cu").write_text(text)
    command = [toolchain.nvcc_path(), "-O3", "-std=c++17", "-arch=sm_80", "-c", "a.cu", "-o", "a.o"]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return folder / "a.o"


@pytest.mark.slow
def test_the_object_has_the_formulas_that_host_code_uses(tmp_path):
    before = compiled(tmp_path, SOURCE)
    words, digest = function_words(before), host_digest(before)
    assert {"launch", "host", "kernel", "ignored", "inner", "outer"} <= {*words}
    assert not {"of_the_kernel", "operator"} & {*words}
    for old, new, of_device in [
        ("a + 11", "a + 12", True),
        ("x * 3", "x * 4", True),
        ("x * 7", "x * 8", False),
    ]:
        after = SOURCE.replace(old, new)
        known = [skeletons({"a.cu": text}, [], words) for text in (SOURCE, after)]
        assert (known[0] == known[1]) == of_device, old
        same = host_digest(compiled(tmp_path, after)) == digest
        assert same == of_device, old
