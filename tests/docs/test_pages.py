"""The links, files and commands in README.md and docs/ exist."""

import os
import re

import pytest

from _jit_loader.commands import main
from tests.docs.markdown import ROOT, Page

PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"python -m jit_loader (\w+)")
PROJECT_FILE = re.compile(
    r"(?:kernels|bindings|examples|tests|benchmarks|docs|_jit_loader)/[\w./]+"
)

COMMANDS = set(main.COMMANDS)


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files_and_headings(name):
    page = Page(name)
    for link in page.links:
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = os.path.relpath(page.path.parent / path if path else page.path, ROOT)
        assert not target.startswith(".."), f"{link} leads out of the project"
        assert (ROOT / target).exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in Page(target).anchors, f"{link}: {target} has no such heading"


@pytest.mark.parametrize("name", PAGES)
def test_files_that_are_named_exist(name):
    page = Page(name)
    made = {text for block in page.blocks for text in PROJECT_FILE.findall(block.text)}
    named = {span for span in page.code_spans if PROJECT_FILE.fullmatch(span)}
    assert [path for path in named - made if not (ROOT / path).exists()] == []


def test_every_page_is_linked_from_the_readme():
    assert set(PAGES) - {"README.md"} <= set(Page("README.md").links)


def test_readme_lists_every_command():
    listed = {span.split()[0] for span in Page("README.md").code_spans if span}
    assert listed >= COMMANDS


@pytest.mark.parametrize("name", PAGES)
def test_commands_that_are_named_exist(name):
    page = Page(name)
    texts = [*page.code_spans, *(block.text for block in page.blocks)]
    named = {name for text in texts for name in COMMAND.findall(text)}
    assert named <= COMMANDS


def test_headings_of_a_page_have_distinct_anchors():
    for name in PAGES:
        anchors = Page(name).anchors
        assert len(anchors) == len(set(anchors)), name
