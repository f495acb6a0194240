"""Loads ops of a project: for load_op, in the background, and as a wrapper in bindings/ does."""

import contextlib
import importlib
import os
import sys

from _jit_loader import loading, this_process

NO_FLAGS = {"extra_cflags": [], "extra_cuda_cflags": [], "extra_ldflags": []}


class OpInUse:
    """An op that load_op has returned in this process, and the functions that get a new module.

    listeners: {file of the caller: the functions to call with a new module}
    """

    def __init__(self, name, project, flags, module):
        self.name, self.project, self.flags = name, project, flags
        self.title, self.call = title_of(name, flags), op_call(name, project, flags)
        self.module = module
        self.listeners = {}

    def load(self, **options):
        """Loads the op from its current files; returns a this_process.Loaded."""
        return load(self.name, self.project, self.flags, **options)

    def replace(self, module):
        """Makes a module the current one, and calls the listeners if it is new."""
        if module is not self.module:
            self.module = module
            for function in [f for functions in self.listeners.values() for f in functions]:
                function(module)


def load_op(name, project, flags, on_load, caller):
    """Implements jit_loader.load_op for one op; caller: the file that calls it."""
    module = load(name, project, flags).result
    arguments = [name, project, flags]
    op = this_process.ops.setdefault(repr(arguments), OpInUse(*arguments, module))
    op.replace(module)
    _leave_other_flags(op, caller)
    listeners = op.listeners.setdefault(caller, [])
    if on_load is not None:
        on_load(module)
        if on_load not in listeners:
            listeners.append(on_load)
    return module


def _leave_other_flags(op, caller):
    """Removes a caller from the op with other flags that it requested earlier."""
    for key, other in list(this_process.ops.items()):
        if other is not op and (other.project, other.title) == (op.project, op.title):
            other.listeners.pop(caller, None)
            if not other.listeners:
                del this_process.ops[key]


def load(name, project, flags, **options):
    """Loads an op and returns a this_process.Loaded.

    flags: {name: value} of Request's extra_... arguments; a variant has "defines" too, in the form
    of report.requests.normalized.
    options: of loading.load.
    """
    return loading.load(name, op_call(name, project, flags), title=title_of(name, flags), **options)


def build(name, project, flags):
    """Loads an op as load does, but makes no live edit."""
    return load(name, project, flags, may_be_live=False)


def op_call(name, project, flags):
    """Returns the loading.Call of an op."""
    return loading.Call("load_op", [name, project, flags])


def title_of(name, flags):
    """Returns the name in messages: 'add2', and 'add2[BLOCK=512]' for a variant."""
    if "defines" not in flags:
        return name  # a hit does not import report.requests
    from _jit_loader.report.requests import title_of as title_of_variant
    from _jit_loader.report.requests import variant_of

    return title_of_variant(name, variant_of(flags["defines"]))


def load_in_background(name, project, flags):
    """Implements jit_loader.load_op with wait=False: returns None while the op is not in the cache.

    A process that builds the op continues if this one ends. Under JIT_LOADER_NO_COMPILE none is
    started. Without a Python to start, this process builds the op.
    """
    from _jit_loader.report.text import say
    from _jit_loader.system import is_set
    from _jit_loader.system.processes import python

    started, key = this_process.in_background, repr([name, project, flags])
    process = started.get(key)
    if key in started and (process is None or process.poll() is None):
        return None
    with contextlib.suppress(loading.NotCached):
        return load(name, project, flags, may_build=python() is None).result
    # Without a failure a file was edited, so that the build was out of date when it ended.
    failed = process is not None and process.returncode != 0
    if failed:
        say(f"{name}: cannot be compiled; to see why: python -m jit_loader build {name}")
    ends = failed or is_set("JIT_LOADER_NO_COMPILE")
    started[key] = None if ends else loading.start_build(op_call(name, project, flags))
    return None


def op_arguments(title, project):
    """Returns [name, project, flags] of an op or a variant, with the flags of its wrapper.

    title: the name of the op, or of a variant, which has more macros than its wrapper requests.

    Raises:
        ValueError: the wrapper does not use load_op.
    """
    from _jit_loader.report.requests import flags_of, parse

    name, defines = parse(title)
    call = loading.call_of(name, lambda: _import(name, project))
    if call is None:  # the wrapper was imported before, or there is none
        used = [op for op in this_process.ops.values() if (op.title, op.project) == (name, project)]
        flags = used[0].flags if used else NO_FLAGS
    elif call.kind == "load_op":
        name, project, flags = call.arguments
    else:
        raise ValueError(f"{name}: its wrapper in bindings/ does not load it with load_op")
    return [name, project, flags_of(flags, {**flags.get("defines", {}), **defines})]


def _import(name, project):
    if os.path.exists(os.path.join(project, "bindings", f"{name}.py")):
        sys.path.insert(0, project)
        try:
            importlib.import_module(f"bindings.{name}")
        finally:
            sys.path.remove(project)
