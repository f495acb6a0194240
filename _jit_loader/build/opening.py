"""Opens a new library as a test, and records the operators and classes that it registers."""

import json
import os
import signal

from _jit_loader import loaded
from _jit_loader.build.pytorch.registrations import registered_by
from _jit_loader.cache import registrations
from _jit_loader.cache.registrations import RestartNeeded
from _jit_loader.report.errors import LOAD_ERRORS

# The child's arguments are sys.path and the library. The last line of its output is the result.
_CHILD = """\
import sys, json
sys.path[:] = json.loads(sys.argv[1])
from _jit_loader.build.opening import report_registrations
report_registrations(sys.argv[2])
"""


def open_as_test(request, library, build_key):
    """Opens a library that is not published yet.

    A second registration ends the process. A library that may make one is opened in a child
    process first, and here only if it makes none.

    Returns (result of load, record of its registrations), or (RestartNeeded, record).
    """

    def open_here():
        return loaded.open_library(library, build_key, request.name, request.form)

    if request.form == "executable" or not registrations.registers(library):
        return open_here(), None
    before = loaded.opened_libraries(request.name)
    if not any(map(registrations.has_registered, before)):
        opened, operators, classes = registered_by(open_here)
        return opened, registrations.make_record(library, operators, classes)
    try:
        record = registrations.make_record(library, *_registered_in_child(request, library))
    except RestartNeeded:
        # The new version may need operators that the loaded one registers.
        if not registrations.open_in_turn([*before, library]):
            raise
        opened, operators, classes = registered_by(open_here)
        return opened, registrations.make_record(library, operators, classes)
    return registrations.conflict(request.name, before, library, record) or open_here(), record


def _registered_in_child(request, library):
    """Opens a library in a child process; returns the operators and the classes it registers.

    Raises:
        ImportError, OSError: the library cannot be loaded; load would raise the same error.
        RestartNeeded: the child died.
    """
    child = registrations.run_child(_CHILD, [library])
    *_, last = ["", *child.stdout.decode(errors="replace").splitlines()]
    if child.returncode != 0 or not last.startswith("{"):
        raise RestartNeeded(
            f"{request.name} registers operators or classes, and so does the version that this "
            "process has loaded. The child process that opened the new version as a test died: "
            f"{_death(child)}. Restart Python to use the new version; until then the old version "
            "stays active"
        )
    result = json.loads(last)
    if "error" in result:
        raise LOAD_ERRORS[request.form][0](result["error"])
    return result["operators"], result["classes"]


def _death(child):
    """Returns why a child died: the exception that C++ prints, else its last line or the signal."""
    lines = child.stderr.decode(errors="replace").splitlines()
    said = [line for line in lines if "what():" in line] or [line for line in lines if line.strip()]
    if said:
        return said[-1].partition("what():")[2].strip() or said[-1].strip()
    if child.returncode < 0:
        return signal.Signals(-child.returncode).name
    return f"exit code {child.returncode}"


def report_registrations(library):
    """Opens a library in the child process and prints its registrations, or its error, as JSON.

    Only static initialisers run, which end the process if they fail. An error in the module's own
    initialisation is an exception, which the parent process can survive.
    """
    import torch

    try:
        _, operators, classes = registered_by(lambda: torch.ops.load_library(library))
        result = {"operators": sorted(operators), "classes": sorted(classes)}
    except OSError as error:
        result = {"error": str(error.__cause__ or error)}
    print("\n" + json.dumps(result), flush=True)
    os._exit(0)  # destructors of the library may print, or fail
