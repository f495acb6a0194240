"""After a complete build, NVRTC's device code of its sources is compared with nvcc's."""

import pkgutil
import shutil
import sys
from pathlib import Path
from threading import Thread

import pytest

import jit_loader
from _jit_loader.build import byproducts
from _jit_loader.build.record import TEXTS
from _jit_loader.cache.files import read_checked, write_checked
from _jit_loader.cache.store import RECORD
from _jit_loader.commands import main
from _jit_loader.cuda import preprocess
from _jit_loader.key.machine import Machine
from _jit_loader.live import self_check
from _jit_loader.live.edit import LIVE
from tests.support.answer import FILES
from tests.support.extension import write, write_files
from tests.support.nvrtc import needs_nvccs_version

pytestmark = [pytest.mark.nvcc, needs_nvccs_version]

SOURCE, KERNEL = "<project>/kernels/answer.cu", "_Z12write_answerPl"


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Returns a folder with the project and its cache; nvcc takes 2 s for the build."""
    folder = tmp_path_factory.mktemp("self_check")
    write_files(folder / "project", FILES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JIT_LOADER_CACHE", str(folder / "cache"))
        patch.setenv("JIT_LOADER_LIVE", "0")  # the tests check it
        jit_loader.load_op("answer", project=str(folder / "project"))
    return folder


@pytest.fixture
def build(built, tmp_path, monkeypatch):
    """Returns the folder of the build, in a private copy of the cache."""
    shutil.copytree(built / "cache", tmp_path / "cache")
    shutil.copytree(built / "project", tmp_path / "project")
    monkeypatch.setenv("JIT_LOADER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path / "project")
    for name in _modules_of_a_project():
        monkeypatch.delitem(sys.modules, name)  # of another test's project
    yield next((tmp_path / "cache").glob("*/answer/*/*/manifest.json")).parent
    for name in _modules_of_a_project():
        del sys.modules[name]


def _modules_of_a_project():
    return [name for name in sys.modules if name.partition(".")[0] == "bindings"]


def check(build, old="", new=""):
    """Checks a build, as if nvcc had compiled another text; returns the answer for the source."""
    texts = read_checked(build / TEXTS)
    assert old in texts[SOURCE]
    write_checked(build / TEXTS, {**texts, SOURCE: texts[SOURCE].replace(old, new)})
    found = self_check.self_check(str(build), str(Path.cwd()))
    assert read_checked(build / LIVE) == found
    assert found.keys() == {SOURCE}
    return found[SOURCE]


def test_nvrtc_compiles_the_same(build, tmp_path):
    expected = {"removed": [], "kernels": {KERNEL: None}, "reason": None, "differs": False}
    assert check(build) == expected
    kept = list(tmp_path.glob("cache/*/macros/*/macros.json"))
    assert len(kept) == 2, "the first edit needs them for the host and for the device"


def test_the_empty_kernel_of_cub_is_not_compiled(build):
    (path,) = (each for each in build.glob(f"*.o{RECORD}") if read_checked(each).get("kernels"))
    record, name = read_checked(path), "_ZN3cub17CUB_300001_SM_9006detail11EmptyKernelIvEEvv"
    record["kernels"].append({**record["kernels"][0], "mangled": name})
    write_checked(path, record)
    assert check(build)["reason"] is None


@pytest.mark.parametrize(("gpu", "difference"), [("9.0", None), ("8.0", "its operations differ")])
def test_the_code_for_this_machines_gpu_is_compared(build, monkeypatch, gpu, difference):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0+PTX")
    monkeypatch.setattr("_jit_loader.live.program.this_machine", lambda: Machine("", [gpu]))
    of_80 = "\n#if __CUDA_ARCH__ == 800\n*to = 43;\n#else\n*to = 42;\n#endif\n"
    assert check(build_again(), "*to = 42;", of_80)["kernels"] == {KERNEL: difference}


def test_it_is_checked_once(build):
    first = check(build)
    assert check(build, "*to = 42", "*to = 43") == first


def test_other_code_is_found(build):
    answer = check(build, "*to = 42", "*to = 43")
    assert answer["kernels"] == {KERNEL: "its operations differ"}
    reason = "NVRTC and nvcc compile write_answer differently: its operations differ"
    assert answer["reason"] == reason
    assert answer["differs"]


def test_other_host_code_than_that_of_a_live_edit_is_found(build, tmp_path):
    check(build)
    same = shutil.copy(build / "answer.cuda.o", tmp_path)
    found = self_check.self_check(str(build), str(Path.cwd()), [same])
    assert not found[SOURCE]["differs"]
    shutil.copy(build / "answer_cpu.o", same)
    found = self_check.self_check(str(build), str(Path.cwd()), [same])
    assert found[SOURCE]["differs"]
    assert read_checked(build / LIVE) == found


def test_code_that_nvrtc_does_not_compile_is_found(build):
    answer = check(build, "*to = 42", "*to = missing")
    assert answer["kernels"] == {}
    assert not answer["differs"]
    assert 'identifier "missing" is undefined' in answer["reason"]


def why(capsys, edit=True):
    """Returns what why says, by default after an edit of the kernel."""
    source = Path("kernels/answer.cu")
    source.write_text(source.read_text().replace("*to = 42", "*to = 44" if edit else "*to = 42"))
    capsys.readouterr()
    assert main(["why", "answer", "--verbose"]) == 0
    return capsys.readouterr().out


def test_a_source_that_differs_takes_the_complete_build(build, capsys):
    check(build, "*to = 42", "*to = 43")
    assert "answer.cu has no live edits: NVRTC and nvcc" in why(capsys, edit=False)
    assert "kernels/answer.cu: NVRTC and nvcc compile write_answer differently" in why(capsys)


@pytest.mark.parametrize(("old", "expected"), [("*to = 42", "NVRTC and nvcc"), ("", "makes a")])
def test_an_edit_is_one_of_the_last_loaded_build(build, capsys, old, expected):
    check(build)
    check(build_again(), old, old and "*to = 43")
    build_again(FILES["kernels/answer_cpu.cpp"])
    assert expected in why(capsys)


def build_again(text="long answer() { return 43; }\n"):
    """Loads another text for the CPU, by default a new one; returns the folder of the build."""
    write(Path("kernels/answer_cpu.cpp"), text)
    jit_loader.load_op("answer", project=str(Path.cwd()))
    return Path(jit_loader.loaded("answer").path).parent


def test_an_edit_knows_what_nvrtc_cannot_compile(build):
    answer = check(build, "#define EXPORT", "struct Host { Unknown* pointer; };\n#define EXPORT")
    assert len(answer["removed"]) == 1
    assert answer["reason"] is None


@pytest.mark.parametrize(
    ("architectures", "live", "times"), [([], "1", 0), (["9.0"], "1", 1), (["9.0"], "0", 0)]
)
def test_a_new_build_is_checked_if_edits_can_be_live(
    build, monkeypatch, architectures, live, times
):
    started = []
    monkeypatch.setattr(byproducts, "this_machine", lambda: Machine("", architectures))
    monkeypatch.setattr(byproducts, "call_detached", lambda *call: started.append(call))
    monkeypatch.setenv("JIT_LOADER_LIVE", live)
    new = build_again()
    assert new != build
    assert started == times * [(byproducts.SELF_CHECK, [str(new), str(Path.cwd())])]


def test_headers_are_read_while_nvcc_compiles(build, monkeypatch):
    started = {}

    def start(function, arguments):
        started[function] = Thread(target=pkgutil.resolve_name(function), args=arguments)
        started[function].start()

    monkeypatch.setattr(byproducts, "this_machine", lambda: Machine("", ["9.0"]))
    monkeypatch.setattr(byproducts, "call_detached", start)
    monkeypatch.setattr(byproducts, "SELF_CHECK", "builtins:print")
    monkeypatch.setenv("JIT_LOADER_LIVE", "1")
    jit_loader.load_op("answer", extra_cuda_cflags=["-DNEW"], project=str(Path.cwd()))
    started[byproducts.READ_HEADERS].join()
    preprocess._preprocess.cache_clear()
    monkeypatch.setattr(preprocess, "_read_headers", None)
    folder = str(Path(jit_loader.loaded("answer").path).parent)
    assert self_check.self_check(folder, str(Path.cwd()))[SOURCE]["reason"] is None


@pytest.mark.gpu
@pytest.mark.slow
def test_a_process_checks_a_new_build(build, wait_for):
    new = build_again()
    wait_for((new / LIVE).exists)
    assert read_checked(new / LIVE)[SOURCE]["reason"] is None
