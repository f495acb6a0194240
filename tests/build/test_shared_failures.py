"""A waiting process raises the builder's error if the files have not changed since."""

import pytest

from tests.support.extension import OTHER, fork


def value_or_error(tiny):
    try:
        return tiny.value()
    except RuntimeError as error:
        return str(error)


@pytest.fixture
def build_and_wait(tiny, wait_for, monkeypatch, capfd):
    """build_and_wait(meanwhile) loads in two processes, and calls meanwhile() in between.

    It returns the value or the error of both.
    """
    monkeypatch.setenv("JIT_LOADER_QUIET", "0")
    begun, other_waits = tiny.folder.parent / "begun", tiny.folder.parent / "other_waits"
    tiny.change_compiler(f"touch {begun}; until [ -e {other_waits} ]; do sleep 0.05; done")

    def run(meanwhile=lambda: None):
        with fork.Pool(2) as processes:
            builder = processes.apply_async(value_or_error, [tiny])
            wait_for(begun.exists)
            other = processes.apply_async(value_or_error, [tiny])
            wait_for(lambda: "waiting for process" in capfd.readouterr().err)
            meanwhile()
            other_waits.touch()
            return [builder.get(60), other.get(60)]

    return run


def test_waiting_process_raises_the_builders_error(tiny, build_and_wait):
    tiny.write("other.cpp", "int a = ;\n")
    one, other = build_and_wait()
    assert one == other
    assert "other.cpp:1: error: " in one
    assert tiny.compiled().count("other.cpp") == 1


def test_source_fixed_during_the_build_gives_no_error(tiny, build_and_wait):
    """Both processes get the value of the corrected source."""
    tiny.write("other.cpp", "int a = ;\n")
    fix = lambda: tiny.write("other.cpp", OTHER)  # noqa: E731
    assert build_and_wait(meanwhile=fix) == [101, 101]


def test_waiting_process_with_another_library_path_builds_again(tiny, start_build, monkeypatch):
    """The library that the builder could not open may open with another LD_LIBRARY_PATH."""
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    tiny.write("other.cpp", "int nope(int);\nint (*pointer)(int) = nope;\n")
    builder = start_build(1, "link")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tiny.folder))
    tiny.error()
    builder.join()
    links = [call for call in tiny.calls() if "-o tiny.so" in call]
    assert len(links) == 2


@pytest.mark.parametrize(("name", "source"), [("other.cpp", "other"), ("value.h", "module")])
def test_file_fixed_after_it_was_read_gives_no_error(tiny, name, source):
    """The error belongs to an old version, so the new one is compiled immediately."""
    good = tiny.folder.parent / "good"
    (tiny.folder / name).rename(good)
    tiny.write(name, "int a = ;\n")
    tiny.after_compilation(f"[ -e {good} ] && mv {good} {tiny.folder}/{name}", f"{source}.cpp")
    assert tiny.value() == 101


def test_error_is_that_of_the_newest_source(tiny):
    new = tiny.folder.parent / "new.cpp"
    new.write_text("\nint b = ;\n")
    tiny.write("other.cpp", "int a = ;\n")
    tiny.after_compilation(f"[ -e {new} ] && mv {new} {tiny.folder}/other.cpp", "other.cpp")
    tiny.error(match=r"^tiny: other\.cpp:2: error: ")
