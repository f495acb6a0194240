"""The command line, python -m jit_loader <command>: a module of this folder for each command.

The commands export and watch have folders of their own. The first line of a command's docstring is
its help. It defines add_arguments(parser) and run(options), which returns the exit code. It imports
PyTorch, and modules that import PyTorch, inside run(), so --help is fast and doctor works without
PyTorch.
"""

import argparse
import importlib
import os
import sys

import _jit_loader

COMMANDS = (
    *("build", "check", "clean", "doctor", "export", "history", "inspect", "list", "new", "prune"),
    *("run", "watch", "why"),
)
FOLDERS = ("export", "watch")


def main(arguments=None):
    """Runs a command line and returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="jit_loader", description="Builds and caches C++ and CUDA extensions for PyTorch."
    )
    version = f"jit_loader {_jit_loader.__version__}"
    parser.add_argument("--version", action="version", version=version)
    subparsers = parser.add_subparsers(metavar="command")
    for name in COMMANDS:
        _add_command(subparsers, name)
    options = parser.parse_args(arguments)
    if not hasattr(options, "run"):
        parser.print_help()
        return 0
    if options.run.__module__.endswith(".run"):
        return options.run(options)  # errors of the program get Python's traceback
    try:
        code = options.run(options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's last flush
        return 141
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        print(f"jit_loader: {error}", file=sys.stderr)
        return 1


def module_of(name):
    """Returns the module of a command."""
    folder = "_jit_loader" if name in FOLDERS else "_jit_loader.commands"
    return importlib.import_module(f"{folder}.{name}")


def _add_command(subparsers, name):
    command = module_of(name)
    description = command.__doc__ or ""  # python -OO removes it
    parser = subparsers.add_parser(
        name,
        help=description.partition("\n")[0].rstrip("."),
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)
