"""CUDA's folder, headers and libraries are found in a Toolkit, in conda and in pip's packages."""

import os
from pathlib import Path

import pytest
import torch

from _jit_loader.key import toolchain
from tests.support import extension


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Returns a folder without a Toolkit; nothing of CUDA is found elsewhere."""
    for name in ("PYTORCH_NVCC", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(toolchain, "packages_folder", lambda: str(tmp_path / "packages"))
    return tmp_path


def write(path, text=""):
    return extension.program(path, text)


def target():
    return Path("targets", toolchain.TARGETS[os.uname().machine][0])


@pytest.mark.parametrize("include", ["include", target() / "include"])
def test_folder_of_a_symlink_to_nvcc_counts_if_it_has_the_headers(folder, monkeypatch, include):
    store, merged = folder / "store", folder / "merged"
    write(store / "include" / "cuda_runtime.h")
    write(store / "bin" / "nvcc")
    (merged / "bin").mkdir(parents=True)
    (merged / "bin" / "nvcc").symlink_to(store / "bin" / "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(merged))
    assert toolchain.cuda_home() == str(store)
    write(merged / include / "cuda_runtime.h")
    assert toolchain.cuda_home() == str(merged)


def test_nvcc_on_path_is_used_if_cuda_home_has_none(folder, monkeypatch):
    write(folder / "bin" / "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(folder / "nowhere"))
    assert toolchain.nvcc_path() == str(folder / "bin" / "nvcc")


def test_nvcc_that_pytorch_nvcc_names_and_that_is_missing_is_named(folder, monkeypatch):
    write(folder / "bin" / "nvcc")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setenv("PYTORCH_NVCC", "/nowhere/nvcc")
    assert "PYTORCH_NVCC names /nowhere/nvcc" in toolchain.why_no_cuda()


def test_pytorch_nvcc_may_have_a_wrapper_and_flags(folder, monkeypatch):
    path = write(folder / "bin" / "nvcc")
    monkeypatch.setenv("PYTORCH_NVCC", "ccache nvcc -O1")
    assert toolchain.nvcc_path() == str(path)


@pytest.mark.nvcc
def test_nvcc_can_be_a_script_outside_the_toolkit(tmp_path, monkeypatch):
    """The Toolkit is in the folder that nvcc prints, not beside the script on PATH."""
    home, nvcc = toolchain.cuda_home(), toolchain.nvcc_path()
    script = write(tmp_path / "bin" / "nvcc", f'#!/bin/sh\nexec {nvcc} "$@"\n')
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    assert (toolchain.nvcc_path(), toolchain.cuda_home()) == (str(script), home)


def test_nvcc_without_a_toolkit_is_refused_with_advice(tiny, folder, monkeypatch):
    path = write(folder / "bin" / "nvcc", "#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    tiny.error(OSError, match=f"{path} does not print its Toolkit's folder. Name", with_cuda=True)


def test_what_a_toolkit_lacks_is_found_in_pips_packages(folder, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    write(folder / "include" / "cuda_runtime.h")
    in_pip = write(folder / "packages" / "nvidia" / "cusparse" / "include" / "cusparse.h").parent
    library = write(folder / "packages" / "nvidia" / "cu13" / "lib" / "libcublas.so.13")
    assert toolchain.more_include_folders(folder) == [str(in_pip)]
    assert toolchain.find_cuda_library(folder, "cublas") == str(library)
    stub = write(folder / "lib64" / "stubs" / "libcuda.so")
    assert toolchain.find_cuda_library(folder, "cuda") == str(stub)
    for name in toolchain.NEEDED_HEADERS:
        write(folder / "include" / name)
    assert toolchain.more_include_folders(folder) == []


def test_pips_packages_for_another_cuda_are_not_used(folder, monkeypatch):
    """They stay if another PyTorch is installed in the same environment."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    packages = folder / "packages" / "nvidia"
    for name in ("bin/nvcc", "include/cublas_v2.h", "lib/libcublas.so.13"):
        write(packages / "cu13" / name)
    library = write(packages / "cublas" / "lib" / "libcublas.so.12")
    header = write(packages / "cublas" / "include" / "cublas_v2.h")
    assert toolchain.nvcc_path() != str(packages / "cu13" / "bin" / "nvcc")
    assert toolchain.more_include_folders(folder) == [str(header.parent)]
    assert toolchain.find_cuda_library(folder, "cublas") == str(library)


def link_toolkit(prefix, layout):
    """Makes a Toolkit of symlinks in the layout of conda, or of a merged Toolkit."""
    real = Path(toolchain.cuda_home())
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "nvcc").symlink_to(real / "bin" / "nvcc")
    headers = prefix / {"conda": target() / "include", "merged": Path("include")}[layout]
    headers.parent.mkdir(parents=True, exist_ok=True)
    headers.symlink_to(real / "include")
    (prefix / "lib").mkdir()
    library = toolchain.find_cuda_library(real, "cudart")
    (prefix / "lib" / "libcudart.so").symlink_to(library)


@pytest.mark.nvcc
@pytest.mark.parametrize("layout", ["conda", "merged"])
def test_build_uses_the_toolkit_of_cuda_home(tiny, tmp_path, monkeypatch, layout):
    link_toolkit(tmp_path / "prefix", layout)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "prefix"))
    tiny.write("module.cpp", f"#include <cuda_runtime.h>\n{extension.MODULE}")
    assert tiny.value(with_cuda=True) == 101


@pytest.mark.nvcc
def test_build_finds_cublas_and_cusparse(tiny):
    home = toolchain.cuda_home()
    folders = [os.path.join(home, "include"), *toolchain.more_include_folders(home)]
    if toolchain.missing_headers(folders) or toolchain.find_cuda_library(home, "cublas") is None:
        pytest.skip("needs cuBLAS and cuSPARSE")
    tiny.write(
        "other.cpp",
        "#include <cublas_v2.h>\n#include <cusparse.h>\n"
        'extern "C" long other(void) { return cublasGetCudartVersion() > 0 ? 100 : 0; }\n',
    )
    assert tiny.value(extra_ldflags=["-lcublas"], with_cuda=True) == 101
