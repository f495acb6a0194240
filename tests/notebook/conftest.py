"""All tests share one IPython kernel, in the project tiny, whose op compiles in 0.3 s.

The folder of tiny is in a copy of this project, which has the op add2.
"""

import os
import shutil

import pytest

from tests.support.extension import ROOT, binding, edit, write, write_files

ANSWER = {
    "kernels/answer.h": "long answer();\n",
    "kernels/answer_math.h": "#define ANSWER 42\n",
    "kernels/answer_cpu.cpp": (
        '#include "kernels/answer.h"\n#include "kernels/answer_math.h"\n'
        "long answer() { return ANSWER; }\n"
    ),
    "bindings/answer.cpp": binding("answer", '#include "kernels/answer.h"\n', get="answer()"),
    "bindings/answer.py": (
        "from jit_loader import load_op\n\nget = load_op('answer').get\n\n\n"
        "def described():\n    return f'the answer is {get()}'\n\n\n"
        "class Reader:\n    def read(self):\n        return get()\n"
    ),
}


class Outcome:
    """A cell's stdout and stderr, and its error message or None."""

    def __init__(self):
        self.stdout = self.stderr = ""
        self.error = None

    @property
    def shown_error(self):
        return "\n".join(self.error["traceback"]) if self.error else None


class Notebook:
    """An IPython kernel and its client, in a folder."""

    def __init__(self, folder, **environment):
        from jupyter_client.manager import KernelManager

        self.folder = folder
        self.manager = KernelManager()
        self.manager.start_kernel(cwd=str(folder), env={**os.environ, **environment})
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def start(self, code):
        """Starts a cell; finish() waits for its end."""
        return self.client.execute(code)

    def finish(self, cell):
        outcome = Outcome()
        while True:
            message = self.client.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != cell:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                vars(outcome)[content["name"]] += content["text"]
            elif kind == "error":
                outcome.error = content
            elif kind == "status" and content["execution_state"] == "idle":
                return outcome

    def run(self, code):
        return self.finish(self.start(code))

    def succeed(self, code):
        """Runs a cell, which must succeed; returns its stripped stdout."""
        outcome = self.run(code)
        assert outcome.error is None, outcome.shown_error
        return outcome.stdout.strip()

    def value_of(self, expression):
        """Returns the repr of a value, without the reload that precedes a cell."""
        asked = self.client.execute("", silent=True, user_expressions={"it": expression})
        while (reply := self.client.get_shell_msg(timeout=60))["parent_header"]["msg_id"] != asked:
            pass
        return reply["content"]["user_expressions"]["it"]["data"]["text/plain"]

    def write(self, name, text):
        return write(self.folder / name, text)

    def edit(self, name, before, after):
        edit(self.folder / name, before, after)

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def make_projects(folder):
    """Creates both projects, and returns the folder of tiny."""
    for name in ("kernels", "bindings"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    write_files(folder / "tiny", ANSWER)
    return folder / "tiny"


@pytest.fixture(scope="session")
def kernel(tmp_path_factory):
    """Starts the kernel for all tests; loads IPython's extension jit_loader and both ops."""
    pytest.importorskip("ipykernel")
    folder = make_projects(tmp_path_factory.mktemp("projects"))
    path = os.pathsep.join([str(folder.parent), str(ROOT), os.environ.get("PYTHONPATH", "")])
    notebook = Notebook(folder, PYTHONPATH=path, JIT_LOADER_QUIET="0")
    notebook.succeed("%load_ext jit_loader")
    notebook.succeed(
        "import torch\nfrom bindings.add2 import AddModel, add2\n"
        "from tiny.bindings.answer import Reader, described, get"
    )
    yield notebook
    notebook.close()


@pytest.fixture
def notebook(kernel):
    """Returns the kernel; after the test, restores every file of its projects."""

    def files():
        paths = [*kernel.folder.glob("*/*.*"), *kernel.folder.parent.glob("*/*.*")]
        return {path: path.read_bytes() for path in paths if path.is_file()}

    before = files()
    yield kernel
    for path in files().keys() - before.keys():
        path.unlink()
    for path, content in before.items():
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
    kernel.succeed("pass")
