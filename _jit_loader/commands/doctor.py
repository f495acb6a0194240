"""Checks the tools that a build needs, and says how to get missing ones.

The exit code is 1 if nothing can be built. Missing CUDA does not count: ops are then built for the
CPU.
"""

import json
import os
import sys
import sysconfig
from typing import NamedTuple

from _jit_loader.build.ninja import ninja_path
from _jit_loader.report.table import print_table
from _jit_loader.system.processes import output_of

OK = "ok"
PROBLEM = "problem"  # something is missing or does not work; other builds succeed
MISSING = "missing"  # nothing can be built

OLDEST_TORCH = "2.11"


class Check(NamedTuple):
    """The result of a check: its level is OK, PROBLEM or MISSING."""

    subject: str
    level: str
    text: str
    fix: str | None = None


def add_arguments(parser):
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def run(options):
    checks = list(all_checks())
    if options.json:
        print(json.dumps([check._asdict() for check in checks], indent=1))
    else:
        print_table([row(check) for check in checks])
    return 1 if any(check.level == MISSING for check in checks) else 0


def row(check):
    """Returns the level, subject and text of a check, without line breaks."""
    text = check.text if check.fix is None else f"{check.text.rstrip('.')}. Fix: {check.fix}"
    return [check.level, check.subject, " ".join(text.split())]


def all_checks():
    """Yields the results of all checks. Without PyTorch, its check is the last."""
    yield _python()
    yield _ninja()
    torch = _torch()
    yield torch
    if torch.level != MISSING:
        from _jit_loader.commands.doctor_checks import checks_with_torch

        yield from checks_with_torch()


def _python():
    text = f"{sys.version.split()[0]}, {sys.executable}"
    if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
        fix = "install Python's headers (Debian, Ubuntu: apt-get install python3-dev)"
        return Check("Python", MISSING, f"{text}, without Python.h", fix)
    return Check("Python", OK, text)


def _ninja():
    path = ninja_path()
    if path is None:
        return Check("ninja", MISSING, "not found", "pip install ninja")
    return Check("ninja", OK, f"{output_of([path, '--version']).strip()}, {path}")


def _torch():
    fix = "pip install torch"
    try:
        import torch
    except Exception as error:
        return Check("PyTorch", MISSING, f"cannot be imported: {error}", fix)
    cuda = f"CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    text = f"{torch.__version__}, {cuda}, {os.path.dirname(torch.__file__)}"
    if torch.__version__ < OLDEST_TORCH:  # a TorchVersion, which compares as a version
        return Check("PyTorch", PROBLEM, text, f"{fix}>={OLDEST_TORCH}")
    return Check("PyTorch", OK, text)
