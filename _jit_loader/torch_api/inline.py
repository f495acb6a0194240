"""The sources of load_inline as files: PyTorch's text, in folders named by its digest."""

import contextlib
import json
import os

from _jit_loader.cache import cache_folder, digest_of
from _jit_loader.cache.files import errors_explained, write_atomically


def source_texts(
    cpp_sources,
    cuda_sources,
    functions,
    with_pytorch_error_handling,
    no_implicit_headers,
    gil_not_used,
):
    """Returns {file name: text}: main.cpp, and cuda.cu if there are CUDA sources."""
    cpp, cuda = list(cpp_sources), list(cuda_sources)
    if not no_implicit_headers:
        cpp = ["#include <torch/extension.h>", *cpp]
        cuda = [f"#include <{h}>" for h in ("torch/types.h", "cuda.h", "cuda_runtime.h")] + cuda
    if functions is not None:
        options = ", pybind11::mod_gil_not_used()" if gil_not_used else ""
        cpp.append(f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m{options}) {{")
        wrap = "torch::wrap_pybind_function({})" if with_pytorch_error_handling else "{}"
        for name, docstring in _with_docstrings(functions).items():
            # PyTorch writes the text as it is: then quotes and line breaks do not compile.
            text = json.dumps(docstring, ensure_ascii=False)
            cpp.append(f'm.def("{name}", {wrap.format(name)}, {text});')
        cpp.append("}")
    texts = {"main.cpp": "\n".join(cpp) + "\n"}
    if cuda_sources:
        texts["cuda.cu"] = "\n".join(cuda) + "\n"
    return texts


def _with_docstrings(functions):
    if isinstance(functions, str):
        functions = [functions]
    if isinstance(functions, list | tuple):
        return {name: name for name in functions}
    if not isinstance(functions, dict):
        raise ValueError(f"Expected 'functions' to be a list or dict, but was {type(functions)}")
    return functions


def write_sources(texts, folder=None):
    """Writes the texts that do not exist yet into one folder, and returns their paths.

    folder: by default one of the cache. No compiler reads those in the caller's folder, because
    extensions may share it.
    """
    folder = folder or os.path.join(cache_folder(), "inline", digest_of(texts))
    with errors_explained(folder):
        os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
        return [_write(os.path.join(folder, name), text) for name, text in texts.items()]


def _write(path, text):
    """Writes a text if the file has another one; returns the path."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if file.read() == text.encode():
            return path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_atomically(path, text.encode())
    return path
