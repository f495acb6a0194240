"""If a module is executed again, functions and classes imported from it get the new code."""

import types

import pytest

from _jit_loader.notebook.identity import keep_identity
from _jit_loader.notebook.reloading import replace_references


class Module:
    """A module whose text can be replaced and executed again."""

    def __init__(self, text):
        self.module = types.ModuleType("wrapper")
        exec(text, vars(self.module))

    def execute(self, text):
        before = dict(vars(self.module))
        exec(text, vars(self.module))
        return keep_identity(before, vars(self.module), "wrapper")

    def __getattr__(self, name):
        return getattr(self.module, name)


def test_function_gets_new_defaults_docstring_and_attributes():
    module = Module("def f(x=1):\n    return x\nf.kind = 'old'\nf.gone = 1\n")
    f = module.f
    assert (
        module.execute("def f(x=2, *, y=3):\n    'New.'\n    return x, y\nf.kind = 'new'\n") == []
    )
    assert module.f is f
    assert (f(), f.__doc__, f.kind, hasattr(f, "gone")) == ((2, 3), "New.", "new", False)


ENUM = """
import enum
class Mode(enum.Enum):
    ONCE = 1
    {more} = 2
    def times(self):
        return {factor} * self.value
    def __str__(self):
        return "{factor}"
def is_once(mode):
    return mode is Mode.ONCE
"""


def test_members_of_an_enum_are_kept_unless_their_names_change():
    module = Module(ENUM.format(more="TWICE", factor=1))
    Mode, once = module.Mode, module.Mode.ONCE
    assert module.execute(ENUM.format(more="TWICE", factor=10)) == []
    assert module.Mode is Mode
    assert (module.is_once(once), once.times(), Mode.TWICE.times()) == (True, 10, 20)
    assert str(once) == "10"
    ((old, new),) = module.execute(ENUM.format(more="THRICE", factor=10))
    assert (old, new) == (Mode, module.Mode)
    assert [*new.__members__] == ["ONCE", "THRICE"]


DECORATED = """
import functools
def decorate(f):
    @functools.wraps(f)
    def call(x):
        return f(x) + {0}
    return call
@decorate
def f(x):
    return {1} * x
"""


def test_decorated_function_gets_the_new_code():
    module = Module(DECORATED.format(1, 10))
    f = module.f
    assert f(2) == 21
    module.execute(DECORATED.format(2, 100))
    assert module.f is f
    assert f(2) == 202


CLASS = """
class Base:
    def name(self):
        return "{0}"
class Derived(Base):
    constant = "{0}"
    def __init__(self):
        super().__init__()
    @property
    def value(self):
        return super().name() + "{0}"
    @classmethod
    def make(cls):
        return cls()
    @staticmethod
    def plain():
        return "{0}"
    def {1}(self):
        return 1
"""


def test_class_and_its_instances_get_the_new_code():
    module = Module(CLASS.format("old", "gone"))
    Base, Derived, instance = module.Base, module.Derived, module.Derived()
    assert module.execute(CLASS.format("new", "more")) == []
    assert (module.Base, module.Derived) == (Base, Derived)
    assert Derived.__bases__ == (Base,)
    assert (instance.value, Derived.constant, Derived.plain()) == ("newnew", "new", "new")
    assert type(Derived.make()) is Derived
    assert instance.more() == 1
    assert not hasattr(instance, "gone")
    assert isinstance(instance, module.Base)


def test_new_class_derives_from_the_old_one():
    module = Module("class A:\n    pass\n")
    A = module.A
    module.execute("class A:\n    pass\nclass B(A):\n    pass\n")
    assert issubclass(module.B, A)


def test_functions_that_refer_to_each_other_are_updated():
    text = "def make():\n    def f():\n        return g\n    def g():\n        return f\n"
    text += "    return f\nclass A:\n    f = make()\n"
    text += "    def name(self):\n        return super().__repr__()\n"
    module = Module(text)
    instance = module.A()
    module.execute(text)
    assert "A object" in instance.name()


def test_function_that_cannot_take_new_code_is_replaced_by_name():
    module = Module("import functools\n@functools.lru_cache\ndef f():\n    return 1\nN = 1\n")
    namespace = {"mine": module.f, "number": module.N}
    pairs = module.execute(
        "import functools\n@functools.lru_cache\ndef f():\n    return 2\nN = 2\n"
    )
    replace_references(pairs, [namespace])
    assert namespace["mine"]() == 2
    assert namespace["number"] == 1, "numbers are not replaced: equal ones may be one object"


def test_function_of_another_module_is_not_changed():
    module = Module("from os.path import join as f\n")
    join = module.f
    module.execute("from os.path import split as f\n")
    assert module.f is not join
    assert join("a", "b") == "a/b"


@pytest.mark.parametrize("method", ["forward", "backward"])
def test_autograd_function_gets_the_new_code(method):
    import torch

    text = (
        "import torch\nclass F(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        return 1 * x\n"
        "    @staticmethod\n    def backward(ctx, grad):\n        return 1 * grad\n"
    )
    module = Module(text)
    F, x = module.F, torch.ones(1, requires_grad=True)
    returned = "return 1 * x" if method == "forward" else "return 1 * grad"
    module.execute(text.replace(returned, returned.replace("1", "7")))
    assert module.F is F
    y = F.apply(x)
    y.backward()
    assert (y.item(), x.grad.item()) == ((7, 1) if method == "forward" else (1, 7))
