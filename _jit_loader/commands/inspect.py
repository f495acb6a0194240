"""Shows what the kernels of an extension use: registers, spills, shared memory and stack.

NAME is an op of the current folder's project, which is built if it has changed, or else an
extension in the cache, of which the newest build is shown; a variant of an op is named as
"add2[BLOCK=512]". What nvcc's assembler has said of each kernel and GPU architecture is kept with
the build.
"""

import json
import sys


def add_arguments(parser):
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--json", action="store_true", help="for programs: all that is known")


def run(options):
    from _jit_loader.commands.compiled_kernels import compiled_kernels

    found = compiled_kernels(options.name)
    if options.json:
        print(json.dumps(found, indent=1))
    elif found["kernels"]:
        _print_table(found["kernels"])
    else:
        print(f"{options.name}: {found['why none']}")
    return 0


def _print_table(kernels):
    from rich import box
    from rich.console import Console
    from rich.table import Table

    numbers = ["registers", "spill stores", "spill loads", "shared", "stack"]
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("kernel", overflow="fold")
    table.add_column("architecture", no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    for source in dict.fromkeys(kernel["source"] for kernel in kernels):
        table.add_section()
        table.add_row(source)
        for kernel in kernels:
            if kernel["source"] == source:
                spills = kernel["spill stores"] + kernel["spill loads"]
                cells = ["-" if kernel[name] is None else str(kernel[name]) for name in numbers]
                style = "bold red" if spills else None
                table.add_row(kernel["kernel"], kernel["architecture"], *cells, style=style)
    # A file or a pipe takes lines of any length.
    width = None if sys.stdout.isatty() else 1000
    console = Console(width=width, markup=False, highlight=False)
    console.print(table)
    console.print(
        "in bytes, but for registers; shared memory that a launch asks for comes on top",
        style="dim",
    )
