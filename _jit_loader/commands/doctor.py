"""Checks the tools that a build needs, and says how to get missing ones.

The exit code is 1 if nothing can be built. Missing CUDA does not count: ops are then built for the
CPU.
"""

import json

from _jit_loader.commands import doctor_checks
from _jit_loader.report.table import print_table


def add_arguments(parser):
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def run(options):
    checks = list(doctor_checks.all_checks())
    if options.json:
        print(json.dumps([check._asdict() for check in checks], indent=1))
    else:
        print_table([row(check) for check in checks])
    return 1 if any(check.level == doctor_checks.MISSING for check in checks) else 0


def row(check):
    """Returns the level, subject and text of a check, without line breaks."""
    text = check.text if check.fix is None else f"{check.text.rstrip('.')}. Fix: {check.fix}"
    return [check.level, check.subject, " ".join(text.split())]
