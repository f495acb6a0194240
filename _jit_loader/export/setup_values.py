"""The values in a wheel's setup.py: the ops' sources, and the flags that the loader would pass."""

import os
import shlex

from _jit_loader.build.checks import check_tools
from _jit_loader.build.pytorch.flags import is_gnu, openmp_flags, own_statics_flags
from _jit_loader.key import toolchain
from _jit_loader.ops.load_op import request_for
from _jit_loader.ops.project import has_cuda_kernel
from _jit_loader.ops.wrapper import op_arguments

OWN_FLAGS = {"cxx": "extra_cflags", "nvcc": "extra_cuda_cflags", "link": "extra_ldflags"}


def requests_of(ops, folder, for_gpus):
    """Returns {op: (its request without its wrapper's flags, its wrapper's flags)}.

    The requests have CUDA sources even if for_gpus is false: setup.py leaves them out then.

    Raises:
        RuntimeError: a tool is missing.
        ValueError: a wrapper does not use load_op.
    """
    return {op: _request(op, folder, for_gpus) for op in ops}


def setup_values(requests, folder):
    """Returns {placeholder: value} for the templates; requests: see requests_of()."""
    request, _ = next(iter(requests.values()))
    gnu = is_gnu(toolchain.cxx_command())
    host_is_gnu = is_gnu(toolchain.host_command())
    in_setup = ["-DWITH_CUDA", *toolchain.cpu_flags()]
    cxx = [flag for flag in request.extra_cflags if flag not in in_setup]
    return {
        "CXX_FLAGS": own_statics_flags(gnu) + cxx,
        "NVCC_FLAGS": own_statics_flags(host_is_gnu, "-Xcompiler=") + request.extra_cuda_cflags,
        "LINK_FLAGS": request.extra_ldflags + openmp_flags(gnu, cxx),
        "DEFINES": {
            op: flags["defines"] for op, (_, flags) in requests.items() if "defines" in flags
        },
        "OPS": {
            op: {
                "sources": [os.path.relpath(source, folder) for source in request.sources],
                **_own_flags(flags),
            }
            for op, (request, flags) in requests.items()
        },
    }


def _request(op, folder, for_gpus):
    name, folder, flags = op_arguments(op, folder)
    with_cuda = has_cuda_kernel(folder, name)
    plain = {kind: [] for kind in OWN_FLAGS.values()}
    check_tools(request_for(name, folder, for_gpus and with_cuda, plain))
    return request_for(name, folder, with_cuda, plain), flags


def _own_flags(flags):
    """Returns the flags of an op's wrapper as arguments, such as {"cxx": ["-DMORE"]}."""
    macros = [f"-D{name}={text}" for name, text in flags.get("defines", {}).items()]
    words = {key: shlex.split(" ".join(flags[kind])) for key, kind in OWN_FLAGS.items()}
    words = {key: own if key == "link" else macros + own for key, own in words.items()}
    return {key: own for key, own in words.items() if own}
