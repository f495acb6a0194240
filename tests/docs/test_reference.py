"""docs/reference.md has everything public, as the docstrings and the headers describe it."""

import importlib.util
import re

from _jit_loader import key
from tests.docs.markdown import ROOT, Page

PAGE = Page("docs/reference.md")
READ_VARIABLE = re.compile(r"""(?:environ\.get\(|environ\[|is_set\(|getenv\()"([A-Z_]+)\"""")


def test_generated_sections_are_up_to_date():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    text = PAGE.path.read_text()
    assert generate.page(text) == text, "run: python docs/generate.py"


def test_table_has_every_environment_variable_that_the_code_reads():
    read = {*key._NAMES, "LD_LIBRARY_PATH", "LD_PRELOAD", "MAX_JOBS"}
    for folder in ("_jit_loader", "bindings", "kernels"):
        for path in (ROOT / folder).rglob("*.[ph]*"):
            if path.suffix in (".py", ".h") and "templates" not in path.parts:
                read |= set(READ_VARIABLE.findall(path.read_text()))
    assert "JIT_LOADER_CACHE" in read
    (table,) = re.findall(
        r"<!-- generated: environment -->(.*?)<!-- end -->", PAGE.path.read_text(), re.DOTALL
    )
    assert read - set(re.findall(r"`([A-Z_]+)(?:=\w+)?`", table)) == set()


def test_reasons_for_a_complete_build_are_those_of_the_code():
    rooms = (ROOT / "_jit_loader" / room for room in ("live", "cuda"))
    code = "".join(path.read_text() for room in rooms for path in room.glob("*.py"))
    _, _, section = PAGE.path.read_text().partition("### Edits of kernels that wait")
    table = re.findall(r"^\| (`.*?) \|", section.partition("\n### ")[0], re.MULTILINE)
    reasons = [span for cell in table for span in re.findall("`(.*?)`", cell)]
    assert len(reasons) > 10
    assert [reason for reason in reasons if reason not in code] == []
