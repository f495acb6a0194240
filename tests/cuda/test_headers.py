"""NVRTC reads headers with the macros of the compiler that nvcc would use."""

from _jit_loader.cuda.headers import PREAMBLE, with_headers
from _jit_loader.cuda.nvrtc import Program
from tests.support.extension import program, write


def test_macros_are_those_of_the_current_host_compiler(tmp_path, monkeypatch):
    for name in ("ONE", "TWO"):
        compiler = program(tmp_path / name, f"#!/bin/sh\necho '#define {name} 1'\n")
        monkeypatch.setenv("CC", str(compiler))
        made = with_headers(Program("", "x.cu", [], {}), [], [], set())
        assert f"#define {name} 1\n" in made.headers[PREAMBLE]


def test_headers_that_nvrtc_keeps_are_read_again_if_one_has_changed(tmp_path):
    made = []
    for text in ("", "changed"):
        paths = [str(write(tmp_path / "block.cuh", text))]
        made.append(with_headers(Program("", "x.cu", [], {}), ["cub/block.cuh"], paths, set()))
    assert made[0].headers != made[1].headers
