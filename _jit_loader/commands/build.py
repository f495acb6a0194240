"""Builds ops of the current folder's project ahead of their first import.

Several are built at once, each in a process of its own and with the flags that its wrapper,
bindings/<name>.py, asks for; "add2[BLOCK=512]" names a variant, with macros of its
own. Those that do not compile do not keep the others from it.
"""

import json
import sys


def add_arguments(parser):
    parser.add_argument("names", nargs="*", metavar="name", help="default: all ops of the project")
    parser.add_argument("--json", action="store_true", help="the results, for programs")


def run(options):
    from _jit_loader.ops.parallel_builds import build_command, build_in_processes, result_of
    from _jit_loader.ops.project import current_project, op_names
    from _jit_loader.ops.wrapper import load_as_imported

    project = current_project()
    names = list(dict.fromkeys(options.names)) or op_names(project)
    one = len(names) == 1
    commands = {name: build_command(name) for name in names}
    if one:
        results = [result_of(names[0], lambda: load_as_imported(names[0], project))]
    else:
        results = build_in_processes(commands)
    if options.json:
        print(json.dumps(results, indent=1))
    failures = [result for result in results if result["error"] is not None]
    if not options.json:
        for failure in failures:
            print(failure["error"], file=sys.stderr)
        if failures and not one:
            failed = ", ".join(failure["name"] for failure in failures)
            print(f"{len(results) - len(failures)} of {len(results)} built; not {failed}")
    return 1 if failures else 0
