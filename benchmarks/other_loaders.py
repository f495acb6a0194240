"""Other loaders from PyPI, with the same kernel and header, if they are installed.

cppimport accepts the light (pybind11) binding with a comment at its top, which names the header,
but no CUDA code. tvm_ffi (apache-tvm-ffi) accepts both kernels and needs a separate binding
(sources/tvm_ffi.cpp).
"""

import importlib.util
import os
import shutil
from pathlib import Path

from benchmarks import report

SOURCES = Path(__file__).parent / "sources"

# cppimport reads this configuration from the source: Python in a comment.
CPPIMPORT_HEAD = """\
// cppimport
/*
<%
import pybind11
cfg["include_dirs"] = [pybind11.get_include()]
cfg["extra_compile_args"] = ["-DTORCH_EXTENSION_NAME=extension"]
cfg["sources"] = ["../{kernel}"]
cfg["dependencies"] = ["../{header}"]
%>
*/
"""


def ways(source, device):
    """Returns the installed loaders that accept a source of the benchmarks."""
    if source != "light":
        return ()
    able = ("cppimport", "tvm_ffi") if device == "cpu" else ("tvm_ffi",)
    installed = tuple(way for way in able if importlib.util.find_spec(way))
    if missing := [way for way in able if way not in installed]:
        report.progress(f'left out: {", ".join(missing)}; pip install -e ".[bench]" installs them')
    return installed


def prepare(way, folder, kernel, header):
    """Prepares the way's folder and returns the arguments of the worker's function."""
    folder = Path(folder, way)
    folder.mkdir()
    if way == "cppimport":
        path = folder / "extension.cpp"
        head = CPPIMPORT_HEAD.format(kernel=kernel.name, header=header.name)
        path.write_text(head + (SOURCES / "light.cpp").read_text())
        return {"path": str(path)}
    binding = folder / "binding.cpp"
    shutil.copy(SOURCES / "tvm_ffi.cpp", binding)
    kind = "cuda_files" if kernel.suffix == ".cu" else "cpp_files"
    files = {"cpp_files": [str(binding)], "cuda_files": []}
    files[kind].append(str(kernel))
    return {**files, "build_directory": str(folder)}


def cppimport(path):
    import cppimport

    os.chdir(Path(path).parent)  # setuptools leaves its objects in the current folder
    return cppimport.imp_from_filepath(path, "extension")


def tvm_ffi(cpp_files, cuda_files, build_directory):
    import tvm_ffi.cpp

    return tvm_ffi.cpp.load(
        "extension", cpp_files=cpp_files, cuda_files=cuda_files, build_directory=build_directory
    )
