"""Builds ops of the current folder's project before they are imported.

Several ops are built in parallel, each in its own process and with the flags that its wrapper,
bindings/<name>.py, requests. "add2[BLOCK=512]" names a variant of add2, which has its own macros.
One failure does not stop the others.

--pch without names precompiles torch/extension.h for later builds of any extension that includes it
before other headers, and needs no project. With names it first precompiles PyTorch's headers for
the bindings.
"""

import json
import os
import sys
import tempfile


def add_arguments(parser):
    parser.add_argument("names", nargs="*", metavar="name", help="default: all ops of the project")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    in_turn = "at low priority, and when no other build with this option is running"
    parser.add_argument("--in-turn", action="store_true", help=in_turn)
    other = "warn if the op's host code differs from that of this object file (for live edits)"
    parser.add_argument("--host-object", metavar="FILE", help=other)
    parser.add_argument("--pch", action="store_true", help="precompile PyTorch's headers")


def run(options):
    if options.pch and not options.names:
        return _precompile()
    if not options.in_turn:
        return _build(options)
    os.nice(10)
    with _turn(options.names):
        return _build(options)


def _turn(names):
    """Returns a context that one process at a time can enter, for background builds."""
    from _jit_loader.cache import cache_folder
    from _jit_loader.cache.lock import build_lock

    return build_lock(cache_folder(), ", ".join(names) or "all ops")


def _build(options):
    from _jit_loader.ops.parallel_builds import build_in_processes, precompiling_pays, result_of
    from _jit_loader.ops.project import current_project, op_names

    project = current_project()
    names = list(dict.fromkeys(options.names)) or op_names(project)
    if len(names) == 1:
        results = [result_of(names[0], lambda: _load(names[0], project, options.pch))]
    else:
        commands = {name: ["jit_loader", "build", name, "--json"] for name in names}
        if names and (options.pch or precompiling_pays(len(names))):
            commands[names[0]].append("--pch")
        results = build_in_processes(commands)
    if options.host_object and len(names) == 1:
        _warn_of_host_code(names[0], options.host_object)
    failures = [result for result in results if result["error"] is not None]
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        _print_failures(failures, len(results))
    return 1 if failures else 0


def _precompile():
    """Precompiles torch/extension.h for the flags of a plain load, without and with CUDA code."""
    from _jit_loader.build.build import precompile
    from _jit_loader.key import toolchain
    from _jit_loader.key.request import Request

    failed = False
    for with_cuda in (False, True) if toolchain.why_no_cuda() is None else (False,):
        with tempfile.TemporaryDirectory(prefix="jit_loader-") as folder:
            source = os.path.join(folder, "main.cpp")
            with open(source, "w") as file:
                file.write("#include <torch/extension.h>\n")
            if not precompile(Request("any", [source], with_cuda=with_cuda, precompile=True)):
                failed = True
    if failed:
        print(
            "torch/extension.h has not been precompiled: that needs g++, 1 GB of disk and 3 GB of "
            "memory, and JIT_LOADER_PCH must not be 0",
            file=sys.stderr,
        )
    return 1 if failed else 0


def _load(name, project, pch):
    """Loads an op; if it was not compiled, restores a missing compile_commands.json."""
    from _jit_loader.build.build import precompile
    from _jit_loader.build.compile_commands import restore_compile_commands
    from _jit_loader.loading import is_unchanged
    from _jit_loader.ops.wrapper import load_as_imported, question_of

    question = question_of(name, project)
    if pch and not is_unchanged(question.kind, question.arguments):
        request = question.requests()[-1]
        request.precompile = True
        precompile(request)
    loaded = load_as_imported(name, project)
    if not loaded.compiled:
        restore_compile_commands(question.requests()[-1])
    return loaded


def _warn_of_host_code(name, host_object):
    from _jit_loader import loaded
    from _jit_loader.live.load import warning_of_host_code

    if name in loaded.last and (
        warning := warning_of_host_code(name, loaded.last[name].path, host_object)
    ):
        print(warning, file=sys.stderr)


def _print_failures(failures, total):
    for failure in failures:
        print(failure["error"], file=sys.stderr)
    if failures and total > 1:
        failed = ", ".join(failure["name"] for failure in failures)
        print(f"built {total - len(failures)} of {total} ops; failed: {failed}")
