"""Where CUDA is: the Toolkit's folder, the headers and libraries elsewhere, and nvcc's commands."""

import functools
import glob
import os
import re

from _jit_loader.cache.memo import stamp
from _jit_loader.key import toolchain
from _jit_loader.system import plain_path
from _jit_loader.system.processes import output_of

# The folder of a Toolkit for this machine's programs; conda has headers and libraries only there.
TARGETS = {"x86_64": ("x86_64-linux",), "aarch64": ("sbsa-linux", "aarch64-linux")}
# Headers that PyTorch's ATen/cuda/CUDAContextLight.h includes.
NEEDED_HEADERS = ("cuda_runtime.h", "cublas_v2.h", "cublasLt.h", "cusparse.h", "cusolverDn.h")


def cuda_home():
    """Returns the folder of the CUDA Toolkit that nvcc belongs to, or None.

    Where bin/nvcc is a symlink, its own folder counts first: in a merged Toolkit (Nix, Spack) the
    link's target lies in a folder of nvcc alone. A script in another folder is asked.
    """
    nvcc = toolchain.nvcc_path()
    for path in (nvcc, os.path.realpath(nvcc)):
        home = os.path.dirname(os.path.dirname(os.path.abspath(path)))
        if "cuda_runtime.h" not in missing_headers(_of_toolkit(home, "include")):
            return home
    return _reported_home(nvcc, stamp(nvcc))


def _of_toolkit(home, *names):
    """Returns the folders of a Toolkit with these names, "include" or "lib64" and "lib"."""
    targets = [os.path.join("targets", target) for target in TARGETS.get(os.uname().machine, ())]
    return [os.path.join(home, part, name) for part in ["", *targets] for name in names]


def _of_pip(name):
    """Returns the folders with this name of pip's CUDA packages, with PyTorch's own libraries."""
    return sorted(glob.glob(os.path.join(glob.escape(toolchain.pip_cuda_folder()), "*", name)))


def more_include_folders(home):
    """Returns the folders of CUDA's headers besides <home>/include, in the order of the search.

    pip's packages are searched for what the Toolkit lacks; PyTorch's own libraries are from them.
    """
    first, *others = _of_toolkit(home, "include")
    others = [folder for folder in others if os.path.isdir(folder)]
    others = [folder for folder in others if os.path.realpath(folder) != os.path.realpath(first)]
    return [*others, *(_of_pip("include") if missing_headers([first, *others]) else ())]


def missing_headers(folders):
    """Returns the NEEDED_HEADERS that no folder has."""
    paths = {name: [os.path.join(folder, name) for folder in folders] for name in NEEDED_HEADERS}
    return [name for name in paths if not any(map(os.path.exists, paths[name]))]


def find_library(home, name):
    """Returns the path of a library of CUDA, such as "cublas", or None.

    pip's packages have lib<name>.so.<version> only. Of the driver's library there is a stub.
    """
    folders = [*_of_toolkit(home, "lib64", "lib"), *_of_pip("lib")]
    folders += [os.path.join(folder, "stubs") for folder in folders]
    for stem in (os.path.join(folder, f"lib{name}") for folder in folders):
        versions = sorted(glob.glob(f"{glob.escape(stem)}.so.*"))
        for path in filter(os.path.exists, [f"{stem}.so", f"{stem}.a", *versions]):
            return path
    return None


@functools.lru_cache
def _reported_home(nvcc, _stamp):
    """Returns the folder that nvcc reports, if nvcc is a script outside of it (20 to 80 ms)."""
    return toolkit_folder(dry_run([nvcc]))


def toolkit_folder(report):
    """Returns the folder that the text of dry_run() names, or None."""
    match = re.search(r"^#\$ TOP=(.*)$", report, re.MULTILINE)
    return plain_path(match[1].strip()) if match else None


def dry_run(nvcc):
    """Returns the commands that nvcc would run; nvcc: its path and flags."""
    return output_of([*nvcc, "-v", "--dryrun", "-c", "-x", "cu", os.devnull, "-o", os.devnull])
