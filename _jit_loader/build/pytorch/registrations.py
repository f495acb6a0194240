"""The operators and classes that are registered with PyTorch in this process.

PyTorch has no public list of them. Tested with versions 2.13 and 2.15.
"""

_CLASSES = "__torch__.torch.classes."  # the beginning of a class's full name


def registered():
    """Returns {names of operators}, {names of classes}, as ns::name.overload and ns.name."""
    import torch

    # An operator with kernels and no definition is listed as well: "name: <name>\nschema: (none)".
    dangling = torch._C._dispatch_find_dangling_impls()
    undefined = {text.partition("\n")[0].removeprefix("name: ") for text in dangling}
    types = [schema.arguments[0].type for schema in torch._C._jit_get_custom_class_schemas()]
    return (
        {*torch._C._dispatch_get_all_op_names()} - undefined,
        {str(type).removeprefix(_CLASSES) for type in types},
    )


def registered_by(open_library):
    """Calls a function that opens a library.

    Returns (its result, {operators}, {classes}) with the operators and classes that it registered.
    """
    operators, classes = registered()
    result = open_library()
    all_operators, all_classes = registered()
    return result, all_operators - operators, all_classes - classes
