"""The versions in docs/support.md and docs/CHANGELOG.md are those of doctor and pyproject.toml."""

import re

from _jit_loader.commands import doctor
from tests.docs.markdown import ROOT

SUPPORT = (ROOT / "docs" / "support.md").read_text()
PROJECT = (ROOT / "pyproject.toml").read_text()


def needed(what):
    """Returns the cell beside a row's title in the table of versions."""
    return re.search(rf"^\| {re.escape(what)} \| (.*?) \|", SUPPORT, re.MULTILINE)[1]


def test_oldest_versions_are_those_that_doctor_accepts():
    assert needed("PyTorch").startswith(f"{doctor.OLDEST_TORCH} ")
    assert f'"torch>={doctor.OLDEST_TORCH}"' in PROJECT
    oldest = doctor.OLDEST_COMPILER
    assert needed("C++ compiler").startswith(f"g++ {oldest['g++']}, or clang++ {oldest['clang']} ")
    assert f'requires-python = ">={needed("Python").split()[0]}"' in PROJECT


def test_changelog_begins_with_the_version_of_the_package():
    version = re.search(r'^version = "(.*)"', PROJECT, re.MULTILINE)[1]
    first = re.search(r"^## ([\d.]+)", (ROOT / "docs" / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first[1] == version
