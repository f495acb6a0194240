"""Replaces private functions of torch.utils.cpp_extension that programs call, to use the cache.

For example, gsplat calls _jit_compile. The parameters are those of PyTorch 2.13 and 2.15. If one
function has other parameters, none of the functions is replaced.
"""

import inspect

_FLAGS = (
    *("extra_cflags", "extra_cuda_cflags", "extra_sycl_cflags", "extra_ldflags"),
    "extra_include_paths",
)
_BUILD = ("name", "sources", *_FLAGS, "build_directory", "verbose", "with_cuda", "with_sycl")
PARAMETERS = {
    "_jit_compile": (*_BUILD, "is_python_module", "is_standalone", "keep_intermediates"),
    "_write_ninja_file_and_build_library": (*_BUILD, "is_standalone"),
    "_import_module_from_library": ("module_name", "path", "is_python_module"),
    "verify_ninja_availability": (),
}


def entry_points(module, load, opened, ninja_path):
    """Returns {name: replacement} for the functions of PyTorch's module, or {}.

    The replacements call load, opened and ninja_path. load: jit_loader's.
    opened(name, folder, is_python_module): the module or the path that load returned for a build
    directory, or None. ninja_path(): None if there is no ninja.
    """
    theirs = {name: getattr(module, name, None) for name in PARAMETERS}
    if any(_parameters(theirs[name]) != PARAMETERS[name] for name in PARAMETERS):
        return {}

    def build_library(**arguments):
        load(**arguments, is_python_module=False)

    def import_module(module_name, path, is_python_module):
        found = opened(module_name, path, is_python_module)
        if found is not None:
            return found
        return theirs["_import_module_from_library"](module_name, path, is_python_module)

    def verify_ninja():
        if ninja_path() is None:
            theirs["verify_ninja_availability"]()

    ours = dict(zip(PARAMETERS, (load, build_library, import_module, verify_ninja)))
    return {name: _with_parameters_of(theirs[name], ours[name]) for name in PARAMETERS}


def _parameters(function):
    return function and tuple(inspect.signature(function).parameters)


def _with_parameters_of(theirs, ours):
    bind = inspect.signature(theirs).bind

    def function(*args, **kwargs):
        try:
            arguments = bind(*args, **kwargs).arguments
        except TypeError:
            return theirs(*args, **kwargs)  # raises Python's own error, whose text gsplat compares
        return ours(**arguments)

    return function
