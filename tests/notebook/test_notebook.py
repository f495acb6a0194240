"""After %load_ext jit_loader in a real IPython kernel, the next cell uses an edited file."""

import os
import re
import subprocess
import time

import pytest

# g++ needs seconds, but little memory, to evaluate this constant.
SLOW = """\
constexpr long sum() {
  long s = 0;
  for (long i = 0; i < 150; ++i)
    for (long j = 0; j < 50000; ++j) s += i ^ j;
  return s;
}
static_assert(sum() > 0);
long answer() { return 44; }
"""


@pytest.mark.parametrize(
    ("file", "before", "after", "value"),
    [
        ("kernels/answer_cpu.cpp", "return ANSWER", "return 1 + ANSWER", "43"),
        ("kernels/answer_math.h", "42", "7", "7"),
        ("bindings/answer.cpp", "(answer())", "(-answer())", "-42"),
    ],
    ids=["kernel", "header", "binding"],
)
def test_edit_is_active_in_the_next_cell(notebook, file, before, after, value):
    show = "print(get(), described(), Reader().read())"
    assert notebook.succeed(show) == "42 the answer is 42 42"
    notebook.edit(file, before, after)
    outcome = notebook.run(show)
    assert outcome.stdout == f"{value} the answer is {value} {value}\n"
    first, last = outcome.stderr.splitlines()
    # Other files may differ from those of the newest build: the test before has been undone.
    assert re.match(r"answer: \S+ changed( and 1 more)?: compiling answer", first)
    assert re.match(r"answer: \S+ changed( and 1 more)?: built in ", last)
    assert notebook.run(show).stderr == "", "nothing has changed, so nothing is printed"


def test_module_that_a_cell_loads_replaces_the_old_one(notebook):
    notebook.succeed(
        "from pathlib import Path; from jit_loader import load_op\n"
        "Path('kernels/answer_math.h').write_text('#define ANSWER 14')\n"
        "load_op('answer')"
    )
    assert notebook.succeed("print(get(), described())") == "14 the answer is 14"


def test_function_that_another_module_has_imported_is_replaced(notebook):
    notebook.write("model.py", "from tiny.bindings.answer import get\nvalue = lambda: get()\n")
    notebook.succeed("import sys; sys.path.insert(0, ''); import model")
    notebook.succeed("from jit_loader import load_op; module = load_op('answer')")
    notebook.edit("kernels/answer_math.h", "42", "16")
    assert notebook.succeed("print(model.value(), module.get())") == "16 16"


def test_function_renamed_in_the_binding_is_taken_from_the_wrapper(notebook):
    notebook.edit("bindings/answer.cpp", '"get", get', '"got", get')
    assert notebook.succeed("print(get())") == "42"
    notebook.edit("bindings/answer.py", "load_op('answer').get", "load_op('answer').got")
    notebook.edit("kernels/answer_math.h", "42", "15")
    assert notebook.succeed("print(described())") == "the answer is 15"


def test_compile_error_is_shown_and_the_cell_is_not_run(notebook):
    notebook.edit("kernels/answer_math.h", "42", "4 2")
    for _ in range(2):
        outcome = notebook.run("ran = True")
        assert outcome.error["ename"] == "CellNotRun"
        assert "answer: kernels/answer_math.h:1: error: expected" in outcome.shown_error
        assert "  1 | #define ANSWER 4 2" in outcome.shown_error
        assert "site-packages" not in outcome.shown_error.split("full compiler output")[0]
    assert notebook.value_of("'ran' in globals(), get()") == "(False, 42)"
    notebook.edit("kernels/answer_math.h", "4 2", "5")
    assert notebook.succeed("print(get())") == "5"


@pytest.mark.parametrize(
    "cell",
    [
        "%%writefile kernels/answer_math.h\n#define ANSWER 6\n",
        "# fixed\n!echo '#define ANSWER 6' > kernels/answer_math.h",
    ],
    ids=lambda cell: cell.split()[0],
)
def test_cell_that_fixes_an_error_is_run(notebook, cell):
    notebook.edit("kernels/answer_math.h", "42", "4 2")
    assert "4 2" in notebook.run("pass").shown_error
    notebook.succeed(cell)
    assert notebook.succeed("print(get())") == "6"


@pytest.fixture
def write(notebook):
    """Writes a text to the op's wrapper, later than it was imported by the clock of file times."""

    def write_wrapper(before, after):
        time.sleep(0.02)
        notebook.edit("bindings/answer.py", before, after)

    return write_wrapper


def test_edited_wrapper_is_executed_again(notebook, write):
    notebook.succeed("reader, function = Reader(), described")
    write("the answer is", "it is")
    write("return get()", "return -get()")
    shown = notebook.succeed("print(described(), reader.read(), Reader().read())")
    assert shown == "it is 42 -42 -42"
    assert notebook.succeed("print(function())") == "it is 42"


def test_edits_of_a_kernel_and_its_wrapper_are_active_together(notebook, write):
    notebook.edit("kernels/answer_math.h", "42", "17")
    write("the answer is", "it is")
    assert notebook.succeed("print(described(), get())") == "it is 17 17"


def test_error_in_a_wrapper_is_printed_and_its_old_code_stays(notebook, write):
    write("def described", "1 / 0\ndef described")
    outcome = notebook.run("print(described())")
    assert "autoreload of tiny.bindings.answer failed" in outcome.stderr
    assert 'answer.py", line 6, in <module>\n    1 / 0' in outcome.stderr
    assert outcome.stdout == "the answer is 42\n"
    assert notebook.run("print(described())").stderr == ""
    write("1 / 0\ndef", "def")
    write("the answer is", "it is")
    assert notebook.succeed("print(described())") == "it is 42"


def test_changed_wrapper_stays_old_while_a_kernel_does_not_compile(notebook, write):
    notebook.succeed("%autoreload 2")
    notebook.edit("kernels/answer_math.h", "42", "4 2")
    write("the answer is", "it is")
    assert "CellNotRun" in notebook.run("pass").shown_error
    assert notebook.value_of("described()") == "'the answer is 42'"
    notebook.edit("kernels/answer_math.h", "4 2", "18")
    assert notebook.succeed("print(described())") == "it is 18"


MODEL = """\
model, function = AddModel(4), add2
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(4)
def gradient(f):
    y = torch.ones(4, requires_grad=True)
    f(x, y).sum().backward()
    return y.grad[0].item()
def step():
    optimizer.zero_grad()
    model().sum().backward()
    optimizer.step()
ways = add2, torch.ops.jit_loader.add2
values = lambda: [f(x, x)[0].item() for f in ways]
gradients = lambda: [gradient(f) for f in ways]
step()
"""
COMPILED = """\
compiled = torch.compile(lambda x, y: add2(x, y), backend="eager", fullgraph=True)
ways = add2, compiled
step()
"""
SHOW = "step(); print(values(), gradients(), model.a.grad is not None)"
AGAIN = "from bindings.add2 import add2 as again; print(again is function, add2 is function)"


def test_model_and_optimizer_use_the_new_kernel(notebook):
    notebook.succeed(MODEL)
    notebook.edit("../kernels/add2_math.h", "a + b", "a + b + 1")
    assert notebook.succeed(SHOW) == "[3.0, 3.0] [1.0, 1.0] True"
    assert notebook.succeed(AGAIN) == "True True"


@pytest.mark.slow
def test_model_optimizer_and_compiled_function_use_the_new_gradient(notebook):
    notebook.succeed(MODEL + COMPILED)
    # Autograd calls the formula until autograd.cpp is compiled, then the binding's gradient.
    notebook.edit("../bindings/add2.py", "return grad, grad", "return grad, 5 * grad")
    five = "return {grad, grad.expand({5, 4}).contiguous()}"  # autograd sums it to y's shape
    notebook.edit("../bindings/add2.cpp", "return {grad, grad}", five)
    assert notebook.succeed(SHOW) == "[2.0, 2.0] [5.0, 5.0] True"
    assert notebook.succeed(AGAIN) == "True True"
    for name in ("differentiable", "registration"):
        file = f"../bindings/shared/{name}.py"
        notebook.edit(file, "\nimport sys\n", "\nimport sys\n\nEDITED = 1\n")
    shown = "from bindings.shared import differentiable, registration as r"
    assert notebook.succeed(f"{shown}; print(differentiable.EDITED, r.EDITED)") == "1 1"
    assert notebook.succeed(SHOW) == "[2.0, 2.0] [5.0, 5.0] True"
    notebook.edit("../bindings/add2.py", "return grad, 5 * grad", "return grad, 7 * grad")
    notebook.edit("../bindings/add2.cpp", five, five.replace("5", "7"))
    assert notebook.succeed(SHOW) == "[2.0, 2.0] [7.0, 7.0] True"
    assert notebook.succeed(AGAIN) == "True True"


def test_interrupt_stops_the_compiler(notebook):
    notebook.write("kernels/answer_cpu.cpp", '#include "kernels/answer.h"\n' + SLOW)
    cell = notebook.start("interrupted = False")
    while notebook.client.get_iopub_msg(timeout=60)["msg_type"] != "stream":
        pass  # the build line
    notebook.manager.interrupt_kernel()
    outcome = notebook.finish(cell)
    assert "KeyboardInterrupt: the build was stopped" in outcome.shown_error
    assert "Error in callback" not in outcome.stdout
    assert str(notebook.folder) not in subprocess.check_output(["ps", "-eo", "args"], text=True)
    assert notebook.value_of("'interrupted' in globals(), get()") == "(False, 42)"
    notebook.edit("kernels/answer_cpu.cpp", "i < 150", "i < 2")
    assert notebook.succeed("print(get())") == "44"


def test_unloaded_extension_reloads_nothing(notebook):
    notebook.succeed("%unload_ext jit_loader")
    notebook.edit("kernels/answer_math.h", "42", "13")
    assert notebook.succeed("print(get())") == "42"
    notebook.succeed("%load_ext jit_loader")
    assert notebook.succeed("print(get())") == "13"


def test_op_whose_files_were_removed_keeps_its_module(notebook):
    os.rename(notebook.folder / "bindings/answer.cpp", notebook.folder / "answer.cpp")
    outcome = notebook.run("print(get())")
    assert outcome.stdout == "42\n"
    assert "bindings/answer.cpp does not exist" in outcome.stderr
    assert notebook.run("print(get())").stderr == ""


def test_measure_takes_a_call_and_a_reference(notebook):
    notebook.succeed("from _jit_loader.measure.timing import SECONDS; SECONDS['cpu'] = 1e-3")
    notebook.succeed("x = torch.ones(9)")
    line = notebook.value_of("get_ipython().run_line_magic('measure', '-r torch.add add2(x, x)')")
    assert re.match(r"add2  .* this CPU's copy  [\d.]+x torch\.add  max error 0$", line)
    for x in ("2 + 2", "", "add2(x"):
        assert notebook.run(f"%measure {x}").stderr.startswith("UsageError: %measure takes a call")
    for value in ("43", "44"):
        notebook.edit("kernels/answer_math.h", "42" if value == "43" else "43", value)
        notebook.succeed("pass")
        line = notebook.value_of("get_ipython().run_line_magic('measure', 'get()')")
    assert re.search(r"  was [\d.]+ [mun]s \((no difference|[+-]\d+%)\)", line)
