"""Several changed ops of a process are built at the same time; one may need a restart."""

import sys
import types

import pytest
import torch

import jit_loader
from _jit_loader import this_process
from _jit_loader.cache.registrations import RestartNeeded
from _jit_loader.notebook.extension import ChangedOps
from _jit_loader.ops.load_op import OpInUse
from tests.support.extension import binding, program, write

NAMES = ("one", "two")
KERNEL = '#include "kernels/value.h"\nextern "C" long value_of_{name}() {{ return VALUE; }}\n'
# Waits up to 20 s for the compiler of the other op, and creates the file 'alone' on a timeout.
MEETING = """\
#!/bin/sh
case " $* " in *" -c "*_cpu.cpp*)
  touch "{folder}/begun-$$"
  for i in $(seq 200) alone; do [ $(ls "{folder}" | grep -c begun) = 2 ] && break; sleep 0.1; done
  [ $i = alone ] && touch "{folder}/alone"
esac
exec g++ "$@"
"""


@pytest.fixture
def two_ops(cache, tmp_path, monkeypatch):
    """Returns a project with two loaded ops that include the same header; no other op is loaded."""
    monkeypatch.setattr(this_process, "ops", {})
    folder = tmp_path / "project"
    write(folder / "kernels" / "value.h", "#define VALUE 1\n")
    for name in NAMES:
        write(folder / "kernels" / f"{name}_cpu.cpp", KERNEL.format(name=name))
        declared, call = f'extern "C" long value_of_{name}();\n', f"value_of_{name}()"
        write(folder / "bindings" / f"{name}.cpp", binding(name, declared, value=call))
        jit_loader.load_op(name, project=str(folder))
    return folder


def reload(ops):
    ops.activate(ops.build())


def test_ops_that_share_a_header_are_built_at_the_same_time(two_ops, tmp_path, monkeypatch):
    (two_ops / "kernels" / "value.h").write_text("#define VALUE 2\n")
    monkeypatch.setenv("CXX", str(program(tmp_path / "c++", MEETING.format(folder=tmp_path))))
    reload(ChangedOps({}))
    assert [jit_loader.loaded(name).result.value() for name in NAMES] == [2, 2]
    assert not (tmp_path / "alone").exists()


@pytest.mark.slow
def test_captured_graphs_keep_the_old_kernels(two_ops, monkeypatch, capsys):
    """Graphs of torch.compile are captured again; a message reports those of the user."""
    resets = []
    dynamo = types.SimpleNamespace(reset=lambda: resets.append(None))
    monkeypatch.setitem(sys.modules, "torch._dynamo", dynamo)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    ops = ChangedOps({})
    reload(ops)
    said = []
    for value in (2, 3, 3):
        (two_ops / "kernels" / "value.h").write_text(f"#define VALUE {value}\n")
        reload(ops)
        assert jit_loader.loaded("one").result.value() == value
        said += [line for line in capsys.readouterr().err.splitlines() if "CUDA graph" in line]
    line = "a CUDA graph captured before this build keeps the old kernels: capture it again"
    assert (said, len(resets)) == ([line], 2)


def test_op_that_needs_a_restart_is_reported_once_and_not_loaded_again(monkeypatch, capsys):
    errors = [RestartNeeded("op registers operators: restart Python")]

    class Op(OpInUse):
        def load(self):
            raise errors.pop()

    monkeypatch.setattr(this_process, "ops", {"op": Op("op", "/project", {}, None)})
    ops = ChangedOps({})
    reload(ops)
    reload(ops)
    assert capsys.readouterr().err.count("restart Python") == 1
