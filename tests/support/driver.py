"""A library in place of CUDA's driver, for machines without a GPU."""

import subprocess

# Four devices. A context is active on each device that was used.
SOURCE = """\
static int started, contexts[4];
int cuInit(unsigned flags) { started = 1; return 0; }
int cuDeviceGetCount(int* count) { if (!started) return 3; *count = 4; return 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { contexts[device] = 1; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *active = contexts[device];
  return 0;
}
"""


def make_driver(folder):
    """Makes libcuda.so.1 in a folder; returns the folder, for LD_LIBRARY_PATH."""
    (folder / "cuda.c").write_text(SOURCE)
    command = ["cc", "-shared", "-fPIC", "cuda.c", "-o", "libcuda.so.1"]
    subprocess.run(command, cwd=folder, check=True)
    return str(folder)
