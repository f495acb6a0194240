"""torch/extension.h comes without the C++ frontend if a source uses nothing of the frontend.

The names are those of PyTorch's headers. A small header takes the place of torch/extension.h.
"""

import os
import subprocess
from pathlib import Path

import pytest
import torch

import jit_loader
from _jit_loader.build.pytorch import extension_header
from _jit_loader.cache import cache_folder
from _jit_loader.cache.store import read_manifest
from _jit_loader.key.request import Request
from tests.support.extension import PYTHON, binding, write

INCLUDE = "#include <torch/extension.h>\n"
HEADER = f"""\
{PYTHON}
namespace torch::optim {{
#ifndef {extension_header.MACRO}
#define FRONTEND 10
struct Adam {{ static const long lr = 7; }};
#endif
}}
#ifndef FRONTEND
#define FRONTEND 0
#endif
#define HIDDEN torch::optim::Adam::lr
"""


@pytest.fixture
def value(tiny, tmp_path, monkeypatch):
    """Returns a function that loads a module with the small header, and returns its value."""
    headers = tmp_path / "headers"
    write(headers / "torch" / "extension.h", HEADER)
    monkeypatch.setenv("CXX", f"c++ -isystem {headers}")

    def value(expression, include=INCLUDE):
        source = tiny.write("one.cpp", include + binding("one", value=expression))
        return jit_loader.load("one", [str(source)]).value()

    return value


def test_header_is_without_the_frontend_unless_it_is_needed_or_asked_for(value, monkeypatch):
    assert value("FRONTEND + 1") == 1
    assert value("FRONTEND + 1", "#include <torch/extension.h>\n// torch::optim::Adam\n") == 1
    assert value("FRONTEND + torch::optim::Adam::lr") == 17
    monkeypatch.setenv("JIT_LOADER_HEADERS", "complete")
    assert value("FRONTEND + 1") == 11


def test_load_inline_has_the_header_without_the_frontend(value):
    assert jit_loader.load_inline("inline", binding("inline", value="FRONTEND + 3")).value() == 3


def test_error_that_names_the_frontend_is_repeated_once_with_the_complete_header(value, tiny):
    assert value("HIDDEN") == 7
    assert tiny.compiled() == ["one.cpp", "one.cpp"]
    assert value("HIDDEN + 1") == 8
    assert tiny.compiled() == ["one.cpp"]


def test_other_errors_are_not_repeated(value, tiny):
    with pytest.raises(jit_loader.CompileError, match=r"one\.cpp:\d+: error: "):
        value("(long)part.save", INCLUDE + "static struct { int x; } part;\n")
    assert tiny.compiled() == ["one.cpp"]


NAMED = {  # a source's text: what the reason ends with; None: the frontend is not needed
    "torch::Tensor f(torch::Tensor a) { return at::relu(a); }": None,
    "struct Net : torch::nn::Module {};": None,
    '// torch::nn::Linear\n/* torch::data::datasets */ auto s = "torch::optim::SGD";': None,
    "void f(torch::Tensor data) { cache.load(data.size(0)); save(data); }": None,
    "namespace detail { int threshold; int pad = relu; }": None,
    "TORCH_LIBRARY(one, m) { m.def('f', std::vector<long>()); }": None,
    "at::cuda::getCurrentCUDAStream(); torch::linalg_norm(x);": None,
    "torch::nn::Linear layer(1, 2);": "torch::nn::Linear",
    "namespace F = torch::nn::functional;\nauto y = F::interpolate(x);": "torch::nn::functional",
    "using namespace torch::nn;\nConv2d convolution;": "torch::nn::Conv2d",
    "namespace torch { void f() { optim::Adam a; } }": "torch::optim",
    "using torch::autograd::Function;": "torch::autograd::Function",
    "torch :: save(x, name);": "torch::save",
    "at::parallel_for(0, 1, 1, f);": "torch::parallel_for",
    "auto r = torch::kMean;": "torch::kMean",
    "if (torch::cuda::is_available()) f();": "torch::cuda::is_available",
    "std::priority_queue<int> q;": "std::priority_queue",
    "#if TORCH_VERSION_MAJOR >= 2\n#endif": "TORCH_VERSION_MAJOR",
    f"#define {extension_header.MACRO}": extension_header.MACRO,
    "#include <torch/torch.h>": "torch/torch.h",
}


def _reason(path, **options):
    return extension_header.choose(Request("one", [str(path)], **options)).get(str(path), "none")


@pytest.mark.parametrize("text", NAMED)
def test_names_of_the_frontend_need_the_complete_header(tiny, text):
    Path(cache_folder()).mkdir(parents=True, exist_ok=True)
    reason = _reason(tiny.write("one.cpp", f"{INCLUDE}{text}\n"))
    assert reason is None if NAMED[text] is None else reason.endswith(NAMED[text]), reason


def test_headers_of_the_user_count_wherever_they_are(tiny):
    names = "#pragma once\ntorch::nn::Linear layer;\n"
    tiny.write("near/deep.h", names)
    tiny.write("near/first.h", f'{INCLUDE}#include "deep.h"\n')
    assert _reason(tiny.write("one.cpp", '#include "near/first.h"\n')).endswith("Linear")
    far = tiny.write("far/shared/layer.hpp", names).parents[1]
    source = tiny.write("two.cpp", "#include <shared/layer.hpp>\n")
    flags = ["-include", "torch/extension.h", "-I", str(far)]
    assert _reason(source) == "none"
    assert _reason(source, extra_cflags=flags).endswith("Linear")
    assert _reason(source, extra_cflags=flags[:2]) is None
    assert _reason(source, extra_cflags=flags[:2], extra_include_paths=[str(far)])
    assert _reason(tiny.write("three.cpp", '#include "torch/extension.h"\n')) is None
    tiny.write("torch/extension.h", "torch::nn::Linear layer;")  # the user's own
    assert _reason(tiny.folder / "three.cpp").endswith("Linear")


PYTORCH = Path(torch.__file__).parent / "include"


def test_no_other_header_of_pytorch_reads_the_macro():
    found = subprocess.run(["grep", "-rl", extension_header.MACRO, PYTORCH], capture_output=True)
    assert found.stdout.decode().split() == [str(PYTORCH / "torch" / "extension.h")]


@pytest.mark.slow
def test_compiler_reads_none_of_the_headers_whose_names_are_searched_for(tmp_path):
    text = '#include <torch/extension.h>\nPYBIND11_MODULE(one, m) { m.def("f", [] { return 5; }); }'
    module = jit_loader.load("one", [str(write(tmp_path / "one.cpp", text))])
    assert module.f() == 5
    files = read_manifest(os.path.dirname(module.__file__))["files"]
    files = {name.rpartition("/torch/include/")[2] for name in files}
    api = "torch/csrc/api/include/"
    assert {"torch/extension.h", f"{api}torch/python.h"} <= files
    folders = [PYTORCH, PYTORCH / api]
    others = extension_header._closure(folders, "torch/python.h", ())
    for name in extension_header._closure(folders, "torch/all.h", others):
        assert not {name, api + name} & files, name
