"""Finds the C++ compiler, nvcc, the CUDA Toolkit and their tools, as PyTorch and the shell do."""

import functools
import glob
import os
import re
import shlex

from _jit_loader.cache import stamp
from _jit_loader.key import cuda_home_of_program, cuda_major, names_architectures, pytorch_version
from _jit_loader.key.machine import this_machine
from _jit_loader.system import plain_path
from _jit_loader.system.processes import output_of

# The target if there is no GPU and no TORCH_CUDA_ARCH_LIST: code is compiled, but cannot be run.
DEFAULT_ARCHITECTURES = ("8.0",)
CPU_LEVELS = {"AVX512": "v4", "AVX2": "v3"}  # {PyTorch's name: level}; all others are v2
CXX_TOOLS = ("as", "ld")  # that a C++ compiler runs
# The folder of a Toolkit for this machine's programs; conda has headers and libraries only there.
TARGETS = {"x86_64": ("x86_64-linux",), "aarch64": ("sbsa-linux", "aarch64-linux")}
# Headers that PyTorch's ATen/cuda/CUDAContextLight.h includes.
NEEDED_HEADERS = ("cuda_runtime.h", "cublas_v2.h", "cublasLt.h", "cusparse.h", "cusolverDn.h")


def cxx_command():
    """Returns the words of the C++ compiler's command as PyTorch chooses it: $CXX, by default c++.

    Raises:
        ValueError: CXX has a quote that is not closed.
    """
    return _words_of("CXX") or ["c++"]


def _words_of(variable):
    """Returns the words of an environment variable, as a shell splits them."""
    return split(os.environ.get(variable, ""), f"the environment variable {variable}")


def split(text, origin):
    """Returns the words of a text, as a shell splits them.

    origin: the name of the text in the error.

    Raises:
        ValueError: the text has a quote that is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:  # "No closing quotation"
        raise ValueError(f"{origin}: {error}: {text}") from None


def find_program(name):
    """Returns the path of a program as a shell finds it, or None."""
    return _first_executable(_candidates(name))


def _candidates(name):
    """Returns the paths at which a shell searches for a program, in order."""
    folders = [""] if os.sep in name else os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [os.path.join(folder, name) for folder in folders]


def _first_executable(paths):
    return next(filter(_is_executable, paths), None)


def _is_executable(path):
    return os.access(path, os.X_OK) and not os.path.isdir(path)


def nvcc_path():
    """Returns the path of nvcc, or None.

    It is searched for in $PYTORCH_NVCC, in torch.utils.cpp_extension.CUDA_HOME if the program has
    set it, in $CUDA_HOME, $CUDA_PATH, on PATH, in /usr/local/cuda and in pip's packages.

    Raises:
        ValueError: PYTORCH_NVCC has a quote that is not closed.
    """
    return _first_executable(_nvcc_candidates())


def _nvcc_candidates():
    named = [word for word in _words_of("PYTORCH_NVCC") if not word.startswith("-")]
    if named:
        return _candidates(named[-1])
    homes = [cuda_home_of_program(), *map(os.environ.get, ("CUDA_HOME", "CUDA_PATH"))]
    in_homes = [os.path.join(home, "bin", "nvcc") for home in filter(None, homes)]
    # `pip install cuda-toolkit[nvcc]` installs it next to torch in site-packages.
    from_pip = os.path.join(pip_cuda_folder(), f"cu{cuda_major()}", "bin", "nvcc")
    return [*in_homes, *_candidates("nvcc"), "/usr/local/cuda/bin/nvcc", from_pip]


def pip_cuda_folder():
    return os.path.join(packages_folder(), "nvidia")


def host_command():
    """Returns the words of the command of nvcc's host compiler: $CC, $NVCC_CCBIN, by default gcc.

    Raises:
        ValueError: the variable has a quote that is not closed.
    """
    return _words_of("CC") or _words_of("NVCC_CCBIN") or ["gcc"]


def packages_folder():
    """Returns the folder that contains the torch package, usually site-packages."""
    import torch  # doctor reports that it is missing

    return os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))


def cpp_extension_path():
    """Returns the path of torch.utils.cpp_extension, which chooses the flags.

    The module is not imported, because that is slow.
    """
    return os.path.join(packages_folder(), "torch", "utils", "cpp_extension.py")


def programs(with_cuda):
    """Returns {role: path} of the installed programs that a build runs."""
    found = {role: _first_executable(paths) for role, paths in _searches(with_cuda).items()}
    if found.get("nvcc") is None:
        found["host"] = None  # only nvcc runs it
    return {role: path for role, path in found.items() if path is not None}


def looked_at(with_cuda):
    """Returns every path whose presence affects the result of programs().

    For each program these are the paths of the search up to and including the program itself.
    """
    paths = []
    for search in _searches(with_cuda).values():
        found = _first_executable(search)
        paths += search[: search.index(found) + 1] if found else search
    return paths


def _searches(with_cuda):
    """Returns {role: the paths at which a program is searched for, in order}.

    The C++ compiler's command may have two programs, as in "ccache g++".
    """
    words = [word for word in cxx_command() if not word.startswith("-")]
    searches = {f"cxx{i}": _candidates(word) for i, word in enumerate(words)}
    searches |= {name: _candidates(name) for name in CXX_TOOLS}
    if with_cuda:
        searches |= {"nvcc": _nvcc_candidates(), "host": _candidates(host_command()[0])}
    return searches


def cuda_home():
    """Returns the folder of the CUDA Toolkit that nvcc belongs to, or None.

    Where bin/nvcc is a symlink, its own folder counts first: in a merged Toolkit (Nix, Spack) the
    link's target lies in a folder of nvcc alone. A script in another folder is asked.
    """
    nvcc = nvcc_path()
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
    folders = sorted(glob.glob(os.path.join(glob.escape(pip_cuda_folder()), "*", name)))
    # Packages for another CUDA stay if PyTorch is replaced: nvidia/cu13 next to nvidia/cublas.
    others = re.compile(rf"/cu(?!{cuda_major()}/)\d+/{name}$")
    return [folder for folder in folders if not others.search(folder)]


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


def find_cuda_library(home, name):
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


def why_no_cuda():
    """Returns None if CUDA code can be compiled; otherwise a sentence that says why it cannot."""
    version, _, cuda, _ = pytorch_version()
    if cuda is None:
        choose = "choose a CUDA build on https://pytorch.org/get-started/locally"
        return f"PyTorch {version} is a build without CUDA; {choose}"
    if nvcc_path() is None:
        if named := os.environ.get("PYTORCH_NVCC"):
            return f"nvcc was not found: PYTORCH_NVCC names {named}; correct it, or unset it"
        return (
            "nvcc was not found (in $CUDA_HOME or $CUDA_PATH, on PATH, in /usr/local/cuda, or from "
            "pip); install the CUDA Toolkit, or run: "
            f'pip install "cuda-toolkit[nvcc,cccl]=={cuda}.*"'
        )
    return None


def cpu_level(machine=None):
    """Returns a machine's level of the x86-64 ABI, such as 'v4'; None on another processor."""
    if os.uname().machine != "x86_64":
        return None
    return CPU_LEVELS.get((machine or this_machine()).cpu, "v2")


def cpu_flags(machine=None):
    """Returns flags that let g++ and clang++ use a machine's vector instructions.

    They name a level of the x86-64 ABI instead of -march=native: the build runs on every CPU of
    that level, and the flag is part of the key, so machines of different levels have separate
    builds.
    """
    level = cpu_level(machine)
    return [f"-march=x86-64-{level}"] if level else []


def architecture_flags(extra_cuda_cflags, machine=None):
    """Returns the -gencode flags for a machine's GPUs.

    It returns [] if the user has chosen the architectures: by TORCH_CUDA_ARCH_LIST, which PyTorch
    reads itself, or by a flag that contains "arch", which is PyTorch's rule.
    """
    if names_architectures() or any("arch" in flag for flag in extra_cuda_cflags):
        return []
    architectures = (machine or this_machine()).architectures or DEFAULT_ARCHITECTURES
    numbers = [architecture.replace(".", "") for architecture in architectures]
    return [f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers]
