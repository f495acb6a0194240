"""Loads once in a new process and prints the seconds that it took after `import torch`.

    python -m benchmarks.child load_op DIR DEVICE    import jit_loader; load_op("add2")
    python -m benchmarks.child bindings DIR DEVICE   from bindings.add2 import add2
    python -m benchmarks.child torch DIR DEVICE      torch.utils.cpp_extension.load of classic/

The parent runs it through run(); JIT_LOADER_CACHE names the cache of the first two, which ignore
DIR and DEVICE. DIR is the build folder of the third.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch  # noqa: F401  its import is not part of the time

CLASSIC = Path(__file__).parent / "classic"


def run(way, folder, device):
    """Returns {"seconds", "compiled"} of one load in a new process with its builds in a folder.

    If folder is None, the process uses the user's cache.
    """
    # Bytecode is written: the benchmark measures a second run, not the compilation of Python code.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["JIT_LOADER_QUIET"] = "1"
    if folder is not None:
        environment["JIT_LOADER_CACHE"] = str(folder)
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", way, str(folder), device],
        cwd=CLASSIC.parent.parent,
        env=environment,
        capture_output=True,
        text=True,
    )
    if finished.returncode != 0:
        raise SystemExit(f"{way} did not load:\n{finished.stderr}")
    return json.loads(finished.stdout.splitlines()[-1])


def load_op():
    import jit_loader

    jit_loader.load_op("add2")
    return jit_loader.loaded("add2").compiled


def bindings():
    import bindings.add2  # noqa: F401
    import jit_loader

    return jit_loader.loaded("add2").compiled


def torch_load(folder, device):
    from torch.utils.cpp_extension import load

    library = Path(folder, "add2_classic.so")
    before = library.stat().st_mtime_ns if library.exists() else None
    kernel = "add2_classic.cu" if device == "cuda" else "add2_classic_cpu.cpp"
    sources = [str(CLASSIC / source) for source in ("add2_classic.cpp", kernel)]
    load("add2_classic", sources, build_directory=folder)
    return library.stat().st_mtime_ns != before


def main():
    way, folder, device = sys.argv[1:]
    started = time.perf_counter()
    if way == "torch":
        compiled = torch_load(folder, device)
    else:
        compiled = {"load_op": load_op, "bindings": bindings}[way]()
    print(json.dumps({"seconds": time.perf_counter() - started, "compiled": compiled}))


if __name__ == "__main__":
    main()
