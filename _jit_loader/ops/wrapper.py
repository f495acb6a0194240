"""Loads an op as its wrapper bindings/<name>.py does, with the flags that the wrapper passes."""

import importlib
import os
import sys

from _jit_loader import loaded, loading
from _jit_loader.ops import load_op
from _jit_loader.report.requests import flags_of, parse

NO_FLAGS = {"extra_cflags": [], "extra_cuda_cflags": [], "extra_ldflags": []}


def load_as_imported(title, project):
    """Loads an op as `import bindings.<name>` does, and returns a loaded.Loaded.

    title: the name of the op, or of a variant, which has more macros than its wrapper requests.
    """
    name, defines = parse(title)
    if defines:
        return load_op.load(*op_arguments(title, project))
    _import(name, project)
    if _last_load(name) is None:
        load_op.load_op(name, project, NO_FLAGS, None, __file__)
    return _last_load(name)


def question_of(title, project):
    """Returns the loading.Question that load_as_imported would ask; does not load the op."""
    name, defines = parse(title)
    if not defines:
        return _recorded_question(name, project)
    arguments = op_arguments(title, project)
    return loading.Question(*load_op.question(*arguments), lambda: load_op.requests(*arguments))


def op_arguments(title, project):
    """Returns [name, project, flags] of an op or a variant, with the flags of its wrapper.

    Raises:
        ValueError: the wrapper does not use load_op.
    """
    name, defines = parse(title)
    question = _recorded_question(name, project)
    if question.kind != "load_op":
        raise ValueError(
            f"{title}: bindings/{name}.py does not load it with load_op, which variants and "
            "exports need"
        )
    name, project, flags = question.arguments
    return [name, project, flags_of(flags, {**flags.get("defines", {}), **defines})]


def _recorded_question(name, project):
    question = loading.question_of(name, lambda: _import(name, project))
    if question is not None:
        return question
    # The wrapper was imported before, or there is none.
    in_use = (op for op in loaded.ops.values() if (op.name, op.project) == (name, project))
    plain = (op.flags for op in in_use if op.title == name)
    flags = next(plain, NO_FLAGS)
    return loading.Question(
        *load_op.question(name, project, flags), lambda: load_op.requests(name, project, flags)
    )


def _import(name, project):
    if os.path.exists(os.path.join(project, "bindings", f"{name}.py")):
        sys.path.insert(0, project)
        try:
            importlib.import_module(f"bindings.{name}")
        finally:
            sys.path.remove(project)


def _last_load(name):
    return next((load for load in loaded.last.values() if load.name == name), None)
