"""inspect shows the resources of kernels, as ptxas prints them."""

import json
from pathlib import Path

import pytest

import jit_loader
from _jit_loader.cache.files import read_checked, write_checked
from _jit_loader.commands import main
from _jit_loader.cuda import ptxas
from tests.support.extension import binding

REPORTS = Path(__file__).parents[1] / "cuda" / "ptxas"
COLUMNS = ["kernel", "architecture", "registers", "spill stores", "spill loads", "shared", "stack"]


def report(name):
    lines = (REPORTS / name).read_text().splitlines()
    return [[kernel[column] for column in COLUMNS] for kernel in ptxas.kernels(lines)]


def test_report_of_two_architectures_is_read():
    assert report("nvcc-13.0.txt") == [
        ["spills<float, 40>", "sm_80", 32, 1216, 2856, 0, 1184],
        ["plain", "sm_80", 8, 0, 0, 0, 0],
        ["shared_and_stack", "sm_80", 30, 0, 0, 1024, 160],
        ["pick", "sm_80", None, 0, 0, None, 0],
        ["spills<float, 40>", "sm_90", 32, 1880, 3532, 0, 1824],
        ["plain", "sm_90", 8, 0, 0, 0, 0],
        ["shared_and_stack", "sm_90", 30, 0, 0, 1024, 160],
        ["pick", "sm_90", None, 0, 0, None, 0],
    ]


def test_report_that_begins_with_a_function_is_read():
    assert report("nvcc-13.2-debug.txt") == [
        ["pick", "sm_80", None, 0, 0, None, 160],
        ["shared_and_stack", "sm_80", 26, 0, 0, 1024, 160],
        ["plain", "sm_80", 8, 0, 0, 0, 0],
        ["spills<float, 40>", "sm_80", 18, 0, 0, 0, 160],
    ]


def test_every_line_of_a_report_is_recognized():
    for path in REPORTS.glob("*.txt"):
        assert all(map(ptxas.is_report, path.read_text().splitlines()))
    for line in ["ptxas error   : Entry function 'k' uses too much shared data", "x.cu(3): error"]:
        assert not ptxas.is_report(line)


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_Z5scaleIfEvPT_l", "scale<float>"),
        ("_Z5scalePfl", "scale"),
        ("c_name", "c_name"),
        ("_ZN2ns5scaleIPFvfELi3EEEvPf", "ns::scale<void (*)(float), 3>"),
        ("_ZN12_GLOBAL__N_15scaleEPf", "scale"),
        ("__nv_static_30__842aa758_9_x_cu_09d379b9__Z5scalePf", "scale"),
    ],
)
def test_names_of_kernels_are_those_of_the_source(mangled, name):
    assert ptxas.readable(mangled) == name


def inspect(capsys, *arguments):
    return main(["inspect", *arguments]), capsys.readouterr().out


def test_table_and_json_show_the_kernels_of_a_build(tiny, capsys):
    """The test writes the record of a CUDA object, so that it does not need nvcc."""
    record_path = Path(tiny.load().__file__).parent / "other.o.json"
    lines = (REPORTS / "nvcc-13.0.txt").read_text().splitlines()
    record = read_checked(record_path)
    record.update(source="<project>/kernels/op.cu", kernels=ptxas.kernels(lines))
    write_checked(str(record_path), record)
    code, out = inspect(capsys, "tiny")
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert ["kernels/op.cu", "shared_and_stack", "sm_90", "30", "0", "0", "1024", "160"] in rows
    assert ["kernels/op.cu", "pick", "sm_80", "-", "0", "0", "-", "0"] in rows
    _, out = inspect(capsys, "tiny", "--json")
    found = json.loads(out)
    assert found["kernels"][0]["source"] == "kernels/op.cu"
    assert found["kernels"][0]["mangled"].startswith("_ZN43_GLOBAL__N__")
    assert [[kernel[c] for c in COLUMNS] for kernel in found["kernels"]] == report("nvcc-13.0.txt")


def test_build_without_cuda_says_so(tiny, capsys):
    tiny.load()
    code, out = inspect(capsys, "tiny")
    assert code == 0
    assert "tiny: built without CUDA" in out
    assert json.loads(inspect(capsys, "tiny", "--json")[1])["with CUDA"] is False


def test_output_of_a_wrapper_is_not_in_the_json(tiny, python):
    tiny.write("bindings/__init__.py", "")
    tiny.write("bindings/faulty.py", "print('importing faulty')\n")
    tiny.write("bindings/faulty.cpp", binding("faulty"))
    tiny.write("kernels/faulty_cpu.cpp", "")
    finished = python("-m", "jit_loader", "inspect", "faulty", "--json", cwd=tiny.folder)
    assert json.loads(finished.stdout)["kernels"] == []
    assert "importing faulty" in finished.stderr


@pytest.mark.slow
@pytest.mark.nvcc
def test_kernels_of_a_real_build_are_shown(tiny, capsys, monkeypatch):
    """Builds with nvcc, and again with the same object; no build warns about spills."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0")
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    tiny.write("kernels.cu", (REPORTS / "kernels.cu").read_text())
    sources = [*tiny.sources, str(tiny.folder / "kernels.cu")]
    jit_loader.load("tiny", sources)
    tiny.write("value.h", "#define VALUE 2\n")
    jit_loader.load("tiny", sources)
    assert "warning" not in capsys.readouterr().err
    kernels = {k["kernel"]: k for k in json.loads(inspect(capsys, "tiny", "--json")[1])["kernels"]}
    assert kernels["spills<float, 40>"]["spill stores"] > 0
    assert kernels["spills<float, 40>"]["source"].endswith("kernels.cu")
    assert kernels["shared_and_stack"]["shared"] == 1024
    assert kernels["plain"]["spill loads"] == 0
    assert 0 < kernels["plain"]["registers"] < 32
