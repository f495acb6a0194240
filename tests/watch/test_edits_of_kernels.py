"""Watch mode runs the new device code of an edited kernel; the complete build follows."""

import os

import pytest

import jit_loader
from _jit_loader.cache import MANIFEST
from tests.support.answer import FILES
from tests.support.nvrtc import needs_nvccs_version
from tests.support.watch import SCRIPT_NAME, Session

pytestmark = [
    pytest.mark.slow,  # tests/live covers live edits, and the errors of their complete builds
    pytest.mark.skipif(jit_loader.why_no_cuda() is not None, reason="needs nvcc"),
    needs_nvccs_version,
]

SCRIPT = """\
import torch
from bindings.answer import module

import jit_loader

print(f"cpu {module.cpu()}", f"gpu {module.gpu()}" * torch.cuda.is_available())
print(f"library {jit_loader.loaded('answer').path}")
"""
KERNEL, HEADER = "project/kernels/answer.cu", "project/kernels/value.cuh"
LIVE = "answer: kernels/value.cuh changed: new device code in "


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    files = {f"project/{name}": text for name, text in FILES.items()}
    files[HEADER] = "__device__ long value() { return 42; }\n"
    files[KERNEL] = '#include "value.cuh"\n' + files[KERNEL].replace("= 42", "= value()")
    # Of fewer kernels all are compiled at once, with their errors.
    launches = "".join(f"more<{i}><<<1, 1>>>(); " for i in range(4))
    files[KERNEL] += f"template <int> __global__ void more() {{}}\nvoid launch() {{ {launches}}}\n"
    session = Session(tmp_path_factory.mktemp("watch"), {**files, SCRIPT_NAME: SCRIPT})
    try:
        session.read_until_the_end()
        yield session
    finally:
        session.terminal.close()


def test_a_run_after_an_edit_has_new_device_code(session, wait_for):
    shown = session.replace(HEADER, "return 42", "return 43")
    assert LIVE in shown
    assert "gpu" not in shown or "gpu 43" in shown
    wait_for(lambda: len(list(session.folder.glob(f"cache/*/answer/*/*/{MANIFEST}"))) == 2)
    shown = session.replace(SCRIPT_NAME, "library", "the library")
    assert "new device code" not in shown
    assert "compiling" not in shown


def test_the_error_of_the_background_build_is_printed(session):
    """Kernels that were not launched are only parsed, not assembled, before the build."""
    session.replace(KERNEL, "more() {}", 'more() { asm("nonsense;"); }')
    shown = session.terminal.read_until(r"Error building extension 'answer'\n")
    assert "nonsense" in shown
    shown = session.replace(KERNEL, 'asm("nonsense;");', "")
    assert "error" not in shown


def test_headers_that_take_seconds_are_precompiled_for_the_next_runs(session, wait_for):
    session.replace(KERNEL, '#include "value', '#include <cooperative_groups.h>\n#include "value')
    session.replace(KERNEL, "= value();", "= value() + 0;")
    files = f"/proc/{session.terminal.process.pid}/fd"
    wait_for(lambda: any(".pch" in os.path.realpath(file) for file in os.scandir(files)))
    assert "new device code in" in session.replace(KERNEL, "value() + 0;", "value() + 1;")
