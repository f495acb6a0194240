"""Tests builds in unusual processes: without standard streams, with limits, forked."""

import resource
import signal

import pytest

FORK_DURING_AN_IMPORT = """
import faulthandler, os, sys, threading, time
import jit_loader

class Slow:
    def find_spec(name, path, target=None):
        if name == "_jit_loader.key.request":
            importing.set()
            time.sleep(0.5)

importing = threading.Event()
sys.meta_path.insert(0, Slow)
builder = threading.Thread(target=lambda: jit_loader.load("tiny", {sources}))
builder.start()
assert importing.wait(60)
pid = os.fork()
if pid == 0:
    faulthandler.enable()
    faulthandler.dump_traceback_later(30, exit=True)
    jit_loader.load("tiny", {sources}, extra_cflags=["-DOTHER"])
    os._exit(0)
status = os.waitpid(pid, 0)[1]
builder.join()
sys.exit(f"the child ended with status {{status}}" if status else 0)
"""


def test_process_without_standard_streams_can_build(tiny, tmp_path, python):
    """A daemon has none: printing the build line fails, and the builds must not fail."""
    result = tmp_path / "result"
    calls = f"[{{'name': name, 'sources': {tiny.sources}}} for name in 'ab']"
    code = (
        "import jit_loader, os, pathlib\nfor descriptor in range(3): os.close(descriptor)\n"
        f"value = jit_loader.load('tiny', {tiny.sources}).value()\n"
        f"pathlib.Path({str(result)!r}).write_text(str(value))\n"
        f"assert all(one.error is None for one in jit_loader.load_many({calls}))\n"
    )
    python("-c", code, JIT_LOADER_QUIET="0")
    assert result.read_text() == "101"


@pytest.mark.parametrize("limit", [100_000, 205_000, 250_000], ids=["empty", "object", "link"])
def test_limit_on_the_size_of_files_is_named_and_leaves_nothing_that_is_reused(
    tiny, in_process, limit
):
    for name in ("module", "other"):
        source = tiny.folder / f"{name}.cpp"
        source.write_text(source.read_text() + f"char {name}_data[200000] = {{1}};\n")

    def load():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        return tiny.value()

    assert "File size limit exceeded" in str(in_process(load))
    assert in_process(tiny.value) == 101


@pytest.mark.slow
def test_child_forked_by_another_thread_while_a_build_imports_can_build(tiny, python):
    """The child has none of the threads that hold import locks."""
    python("-c", FORK_DURING_AN_IMPORT.format(sources=tiny.sources), check=True)
