"""Builds ops of the current folder's project before they are imported.

Several ops are built in parallel, each in its own process and with the flags that its wrapper,
bindings/<name>.py, requests from load_op. "add2[BLOCK=512]" names a variant of add2, which has its
own macros. One failure does not stop the others.

--pch without names precompiles torch/extension.h for later builds of any extension that includes it
before other headers, and needs no project. With names it first precompiles PyTorch's headers for
the bindings.
"""

import sys
import tempfile
from pathlib import Path


def add_arguments(parser):
    parser.add_argument("names", nargs="*", metavar="name", help="ops to build (default: all)")
    parser.add_argument("--pch", action="store_true", help="precompile PyTorch's headers")


def run(options):
    if options.pch and not options.names:
        return _precompile()
    from _jit_loader.ops.builds import build_all, build_here, precompiling_pays
    from _jit_loader.ops.project import current_project, op_names
    from _jit_loader.system.jobs import parallel_jobs

    project = current_project()
    names = list(dict.fromkeys(options.names)) or op_names(project)
    pch = options.pch or precompiling_pays(len(names), parallel_jobs())
    if len(names) == 1:
        if pch:
            precompile_headers(names[0], project)
        outcomes = [build_here(names[0], lambda: load(names[0], project))]
    else:
        calls = [(name, f"{__name__}:load", [name, project], None) for name in names]
        first = {"function": f"{__name__}:precompile_headers", "arguments": [*names[:1], project]}
        outcomes = build_all("build", "op", calls, first=first if pch else None)
    failures = [outcome for outcome in outcomes if outcome.error is not None]
    for failure in failures:
        print(failure.text, file=sys.stderr)
    if failures and len(names) > 1:
        failed = ", ".join(failure.name for failure in failures)
        print(f"built {len(names) - len(failures)} of {len(names)} ops; failed: {failed}")
    return 1 if failures else 0


def _precompile():
    """Precompiles torch/extension.h for the flags of a plain load, without and with CUDA code."""
    from _jit_loader.build.build import precompile
    from _jit_loader.key import toolchain
    from _jit_loader.key.request import Request

    choices = [False, True] if toolchain.why_no_cuda() is None else [False]
    with tempfile.TemporaryDirectory(prefix="jit_loader-") as folder:
        source = Path(folder, "main.cpp")
        source.write_text("#include <torch/extension.h>\n")
        requests = [Request("any", [source], with_cuda=c, precompile=True) for c in choices]
        made = [precompile(request) for request in requests]
    if all(made):
        return 0
    raise RuntimeError(
        "torch/extension.h could not be precompiled: the reason is above, or JIT_LOADER_PCH=0 or "
        "JIT_LOADER_NO_COMPILE is set, or the compiler is not g++"
    )


def load(name, project):
    """Loads an op with the flags of its wrapper."""
    from _jit_loader.ops.load_op import build, op_arguments

    return build(*op_arguments(name, project))


def precompile_headers(name, project):
    """Precompiles PyTorch's headers for an op, and for others like it."""
    from _jit_loader.ops.builds import precompile_for
    from _jit_loader.ops.load_op import op_arguments, op_call

    precompile_for(lambda: op_call(*op_arguments(name, project)))
