"""Checks what building needs, and says how to get what is missing.

The exit code is 1 where something is missing without which nothing can be built; CUDA is no such
thing.
"""

import json

from _jit_loader.commands import doctor_checks as findings
from _jit_loader.report.table import print_table


def add_arguments(parser):
    parser.add_argument("--json", action="store_true", help="the findings, for programs")


def run(options):
    found = list(findings.all_findings())
    if options.json:
        print(json.dumps([finding._asdict() for finding in found], indent=1))
    else:
        print_table([_row(finding) for finding in found])
    return 1 if any(finding.level == findings.MISSING for finding in found) else 0


def _row(finding):
    text = finding.text if finding.fix is None else f"{finding.text}. Fix: {finding.fix}"
    return [finding.level, finding.subject, " ".join(text.split())]
