"""Where the tools are: the C++ compiler, nvcc and the CUDA Toolkit. Looks at files only."""

import glob
import os

import torch

from _jit_loader import machine

# Without a GPU and without TORCH_CUDA_ARCH_LIST the code is compiled to see that it compiles.
DEFAULT_ARCHITECTURES = ("8.0",)


def cxx_command():
    """The words of the C++ compiler's command, as PyTorch chooses it: $CXX, else c++."""
    return _words(os.environ.get("CXX", "")) or ["c++"]


def _words(command):
    if not set(command) & set(" \t\\\"'"):
        return [command] if command else []
    import shlex  # 0.3 ms, a tenth of a hit

    return shlex.split(command)


def find_program(name):
    """The path of a program as a shell finds it, or None; shutil.which takes ten times as long."""
    folders = [""] if os.sep in name else os.environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders:
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return None


def cxx_programs():
    """Paths of the programs in the C++ compiler's command ("ccache g++" has two); [] without."""
    words = [word for word in cxx_command() if not word.startswith("-")]
    found = [find_program(word) for word in words]
    return [path for path in found if path is not None]


def nvcc_path():
    """Path of nvcc, or None: $PYTORCH_NVCC, $CUDA_HOME, $CUDA_PATH, PATH, /usr/local/cuda, pip."""
    named = _words(os.environ.get("PYTORCH_NVCC", ""))
    if named:
        return find_program(named[-1])
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        return find_program(os.path.join(home, "bin", "nvcc"))
    return (
        find_program("nvcc")
        or find_program("/usr/local/cuda/bin/nvcc")
        or next(filter(None, map(find_program, _pip_nvccs())), None)
    )


def _pip_nvccs():
    """nvcc from `pip install cuda-toolkit[nvcc]`, which lies beside torch in site-packages."""
    return sorted(glob.glob(os.path.join(packages_folder(), "nvidia", "cu*", "bin", "nvcc")))


def packages_folder():
    """The folder that holds the torch package, site-packages as a rule."""
    return os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))


def programs(with_cuda):
    """{role: path} of the programs a build starts from, without those that are not installed."""
    found = {f"cxx{i}": path for i, path in enumerate(cxx_programs())}
    nvcc = nvcc_path() if with_cuda else None
    if nvcc is not None:
        found["nvcc"] = nvcc
        # PyTorch passes $CC to nvcc as the host compiler, else nvcc takes gcc.
        host = find_program(os.environ.get("CC") or os.environ.get("NVCC_CCBIN") or "gcc")
        if host is not None:
            found["host"] = host
    return found


def why_no_cuda():
    """None where CUDA code can be compiled, else what is missing, as one sentence."""
    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} is a build without CUDA"
    if nvcc_path() is None:
        package = f"cuda-toolkit[nvcc,cccl]=={torch.version.cuda}.*"
        return (
            "nvcc was not found (in $CUDA_HOME, on PATH, in /usr/local/cuda, or from pip); install "
            f'the CUDA Toolkit, or run: pip install "{package}"'
        )
    return None


def cpu_flags():
    """Flags that let g++ and clang++ use this CPU's vector instructions.

    A level of the x86-64 ABI, not -march=native: the build then runs on every CPU of that level,
    and the flag, being part of the key, keeps machines of different levels apart.
    """
    if os.uname().machine != "x86_64":
        return []
    level = {"AVX512": "v4", "AVX2": "v3"}.get(machine.facts()["cpu"], "v2")
    return [f"-march=x86-64-{level}"]


def architecture_flags(extra_cuda_cflags):
    """-gencode flags for the GPUs of this machine.

    [] where the caller says what to compile for: by TORCH_CUDA_ARCH_LIST, which PyTorch reads
    itself, or by a flag with "arch" in it, as PyTorch has it.
    """
    named = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
    if named not in ("", "native") or any("arch" in flag for flag in extra_cuda_cflags):
        return []
    architectures = machine.facts()["architectures"] or DEFAULT_ARCHITECTURES
    numbers = [architecture.replace(".", "") for architecture in architectures]
    return [f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers]
