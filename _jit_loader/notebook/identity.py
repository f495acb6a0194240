"""Gives functions and classes that other modules have imported the new code, in place."""

import contextlib
import enum
import sys
import types

from _jit_loader.loaded import is_built

# Attributes of classmethods, staticmethods and properties that hold their functions.
WRAPPED = ("__func__", "fget", "fset", "fdel")
METHODS = (types.FunctionType, property, classmethod, staticmethod)
# Attributes that a class does not take over from the new one.
OWN_ATTRIBUTES = {"__dict__", "__weakref__", "__module__", "__qualname__", "__name__"}


def keep_identity(before, namespace, module_name):
    """Gives a module's old functions and classes the new code, and puts them back into it.

    before: the module's names before it was executed again. namespace: its names now, which this
    function changes.

    Returns pairs (old object, new object) of the callables that cannot take the new code.
    """
    new_of_module = {
        name: value
        for name, value in namespace.items()
        if name in before
        and value is not before[name]
        and callable(value)
        and (getattr(value, "__module__", None) == module_name or _is_compiled(before[name]))
    }
    others = []
    kept = {}  # id of a new class: the old one
    for name, new in new_of_module.items():
        old = before[name]
        if _take_over(old, new, kept):
            namespace[name] = old
            kept[id(new)] = old
        elif callable(old):
            others.append((old, new))
    for value in namespace.values():
        _keep_bases(value, kept)
    return others


def _is_compiled(value):
    """Returns whether a value is a function of an op's module."""
    if not isinstance(value, types.BuiltinFunctionType):
        return False
    module = sys.modules.get(value.__module__ or "")
    return module is None or is_built(module)


def _take_over(old, new, kept):
    """Gives an old function or class the new code; returns whether that was possible."""
    try:
        if type(old) is type(new) is types.FunctionType:
            _take_over_function(old, new)
            return True
        if isinstance(old, enum.EnumMeta) and type(old) is type(new):
            return _take_over_enum(old, new)
        if isinstance(old, type) and type(old) is type(new):
            _take_over_class(old, new, kept)
            return True
    except (TypeError, ValueError, AttributeError):
        pass  # another number of closure variables, another layout, ...
    return False


def _take_over_function(old, new):
    old.__code__ = new.__code__  # raises ValueError if the closures differ in size
    for cell, new_cell in zip(old.__closure__ or (), new.__closure__ or ()):
        cell.cell_contents = new_cell.cell_contents
    # Python 3.14 computes annotations when they are first read.
    annotations = "__annotate__" if hasattr(new, "__annotate__") else "__annotations__"
    for name in ("__defaults__", "__kwdefaults__", "__doc__", annotations):
        setattr(old, name, getattr(new, name))
    vars(old).clear()
    vars(old).update(vars(new))


def _take_over_enum(old, new):
    """Gives an enum the new methods if its members are equal: members are compared by identity."""
    members = [[(name, member.value) for name, member in e.__members__.items()] for e in (old, new)]
    if members[0] != members[1]:
        return False
    for name, value in vars(new).items():
        if isinstance(value, METHODS):
            setattr(old, name, value)
    return True


def _take_over_class(old, new, kept):
    bases = tuple(kept.get(id(base), base) for base in new.__bases__)
    if old.__bases__ != bases:
        old.__bases__ = bases
    for name, value in vars(new).items():
        if name not in OWN_ATTRIBUTES and value is not vars(old).get(name):
            setattr(old, name, value)
    for name in set(vars(old)) - set(vars(new)) - OWN_ATTRIBUTES:
        delattr(old, name)
    # super() in a method uses the class in which the method was defined.
    for cell in _closed_over(list(vars(new).values())):
        if cell.cell_contents is new:
            cell.cell_contents = old


def _closed_over(values):
    """Yields the closure cells of functions, and of the functions that they wrap."""
    seen = set()
    while values:
        value = values.pop()
        values += [getattr(value, name, None) for name in WRAPPED if name in dir(type(value))]
        if not isinstance(value, types.FunctionType) or id(value) in seen:
            continue
        seen.add(id(value))
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # the cell is empty
                values.append(cell.cell_contents)
                yield cell


def _keep_bases(value, kept):
    """Replaces new base classes with the old ones that took over their code."""
    if isinstance(value, type) and any(id(base) in kept for base in value.__bases__):
        value.__bases__ = tuple(kept.get(id(base), base) for base in value.__bases__)
