"""Watch mode runs the new device code of an edited kernel; the complete build follows."""

import pytest
import torch

import jit_loader
from _jit_loader.cache.store import MANIFEST
from _jit_loader.cuda import nvrtc
from tests.support.answer import FILES, is_of_nvrtcs_version
from tests.support.driver import make_driver
from tests.support.watch import SCRIPT_NAME, Session

pytestmark = [
    pytest.mark.skipif(jit_loader.why_no_cuda() is not None, reason="needs nvcc"),
    pytest.mark.skipif(nvrtc.library_path() is None, reason="PyTorch's wheel has no NVRTC"),
]

SCRIPT = """\
import ctypes
import torch
from bindings.answer import module

import jit_loader
from _jit_loader.cuda.early_start import start_of_this_process

print(f"CUDA is started: {start_of_this_process() is not None}")
driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
print(f"cpu {module.cpu()}", f"gpu {module.gpu()}" * torch.cuda.is_available())
print(f"library {jit_loader.loaded('answer').path}")
"""
KERNEL, HEADER = "project/kernels/answer.cu", "project/kernels/value.cuh"
LIVE = "answer: kernels/value.cuh changed: new device code; the complete build follows\n"


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    files = {f"project/{name}": text for name, text in FILES.items()}
    files[HEADER] = "__device__ long value() { return 42; }\n"
    files[KERNEL] = '#include "value.cuh"\n' + files[KERNEL].replace("= 42", "= value()")
    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available():
            patch.setenv("LD_LIBRARY_PATH", make_driver(tmp_path_factory.mktemp("driver")))
        session = Session(tmp_path_factory.mktemp("watch"), {**files, SCRIPT_NAME: SCRIPT})
    try:
        shown = session.read_until_the_end()
        if not is_of_nvrtcs_version(shown.partition("library ")[2].split()[0]):
            pytest.skip(f"the version of nvcc differs from that of NVRTC, {nvrtc.version()}")
        yield session
    finally:
        session.terminal.close()


def test_a_run_after_an_edit_has_new_device_code(session, wait_for):
    shown = session.replace(HEADER, "return 42", "return 43")
    assert LIVE in shown
    assert "gpu" not in shown or "gpu 43" in shown
    assert "CUDA is started: True" in shown
    wait_for(lambda: len(list(session.folder.glob(f"cache/*/answer/*/*/{MANIFEST}"))) == 2)
    shown = session.replace(SCRIPT_NAME, "library", "the library")
    assert "new device code" not in shown
    assert "compiling" not in shown


def test_cuda_is_not_started_early_if_the_script_may_use_it_in_another_way(session):
    session.write(SCRIPT_NAME, SCRIPT + "# saved together with the header\n")
    shown = session.replace(HEADER, "return 43", "return 44")
    assert LIVE in shown
    assert "CUDA is started: False" in shown
    # A child cannot use CUDA if its parent has started it.
    fork = "os.fork() or os._exit(0)\nos.wait()\n"
    session.run(f"import os\n{SCRIPT}".replace("driver =", f"{fork}driver ="))
    shown = session.replace(HEADER, "return 44", "return 45")
    assert LIVE in shown
    assert "CUDA is started: False" in shown


def test_the_error_of_the_background_build_is_printed(session):
    """nvcc refuses a call of a host function in code that NVRTC compiles."""
    session.replace(KERNEL, "= value()", "= of_host(value())")
    shown = session.terminal.read_until(r"Error building extension 'answer'\n")
    assert "answer.cu:5: error: calling a __host__ function" in shown
    shown = session.replace(KERNEL, "= of_host(value())", "= value()")
    assert "error" not in shown
