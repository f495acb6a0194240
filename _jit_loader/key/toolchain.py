"""Finds the C++ compiler, nvcc and their tools, as PyTorch and the shell do; runs no program."""

import glob
import os
import shlex

from _jit_loader.key import cuda_home_of_program, names_architectures, pytorch_version
from _jit_loader.key.machine import this_machine

# The target if there is no GPU and no TORCH_CUDA_ARCH_LIST: code is compiled, but cannot be run.
DEFAULT_ARCHITECTURES = ("8.0",)
CPU_LEVELS = {"AVX512": "v4", "AVX2": "v3"}  # {PyTorch's name: level}; all others are v2
CXX_TOOLS = ("as", "ld")  # that a C++ compiler runs


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


def _cxx_tool_candidates(name):
    """Returns the paths at which g++ searches for the assembler or the linker, in order.

    They matter only if the compiler was installed without an assembler or a linker.
    """
    folders = os.environ.get("COMPILER_PATH", "").split(os.pathsep)
    return [os.path.join(folder, name) for folder in folders if folder] + _candidates(name)


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
    named = _words_of("PYTORCH_NVCC")
    if named:
        return _candidates(named[-1])
    homes = [cuda_home_of_program(), *map(os.environ.get, ("CUDA_HOME", "CUDA_PATH"))]
    in_homes = [os.path.join(home, "bin", "nvcc") for home in filter(None, homes)]
    # `pip install cuda-toolkit[nvcc]` installs it beside torch in site-packages.
    from_pip = sorted(glob.glob(os.path.join(pip_cuda_folder(), "cu*")))
    from_pip = [os.path.join(folder, "bin", "nvcc") for folder in from_pip]
    return [*in_homes, *_candidates("nvcc"), "/usr/local/cuda/bin/nvcc", *from_pip]


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
    paths = [pip_cuda_folder()] if with_cuda else []
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
    searches |= {name: _cxx_tool_candidates(name) for name in CXX_TOOLS}
    if with_cuda:
        searches |= {"nvcc": _nvcc_candidates(), "host": _candidates(host_command()[0])}
    return searches


def why_no_cuda():
    """Returns None if CUDA code can be compiled; otherwise a sentence that says why it cannot."""
    version, _, cuda, _ = pytorch_version()
    if cuda is None:
        return f"PyTorch {version} is a build without CUDA"
    if nvcc_path() is None:
        package = f"cuda-toolkit[nvcc,cccl]=={cuda}.*"
        return (
            "nvcc was not found (in $CUDA_HOME, on PATH, in /usr/local/cuda, or from pip); install "
            f'the CUDA Toolkit, or run: pip install "{package}"'
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
