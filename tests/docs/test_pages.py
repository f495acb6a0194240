"""The links, files and commands in README.md and docs/ exist."""

import argparse
import os
import re
import shlex

import pytest

from _jit_loader import commands
from tests.docs.markdown import ROOT, Page

PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))]
COMMAND = re.compile(r"(?:python -m jit_loader|^jit_loader|&& jit_loader) +(\w+.*)", re.MULTILINE)
EXTRA = re.compile(r'pip install -e "?\.\[(\w+)\]')
PROJECT_FILE = re.compile(
    r"(?:kernels|bindings|examples|tests|benchmarks|docs|_jit_loader)/[\w./]+"
)

COMMANDS = set(commands.COMMANDS)


@pytest.mark.parametrize("name", PAGES)
def test_links_headings_and_files_exist(name):
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
    made = {text for block in page.blocks for text in PROJECT_FILE.findall(block.text)}
    named = {span for span in page.code_spans if PROJECT_FILE.fullmatch(span)}
    assert [path for path in named - made if not (ROOT / path).exists()] == []


def test_readme_in_chinese_has_the_same_code():
    english, chinese = Page("README.md"), Page("docs/zh-CN/README.md")
    assert [block[:2] for block in chinese.blocks] == [block[:2] for block in english.blocks]
    assert set(english.code_spans) <= set(chinese.code_spans)


def test_links_lead_from_the_readme_to_every_page():
    found, new = set(), {"README.md"}
    while new:
        found |= new
        targets = {
            os.path.normpath(os.path.join(os.path.dirname(name), link.partition("#")[0]))
            for name in new
            for link in Page(name).links
        }
        new = (targets & set(PAGES)) - found
    assert found == set(PAGES)


def test_readme_lists_every_command():
    listed = {span.split()[0] for span in Page("README.md").code_spans if span}
    assert listed >= COMMANDS


def texts_of(page):
    """Returns the code of a page; a command may continue after a backslash."""
    texts = [*page.code_spans, *(block.text for block in page.blocks)]
    return [re.sub(r"\\\n\s*", "", text) for text in texts]


@pytest.mark.parametrize("name", PAGES)
def test_commands_that_are_named_exist_with_their_options(name):
    for text in texts_of(Page(name)):
        for line in COMMAND.findall(text):
            command, *words = shlex.split(re.split(r"[|&;`]|  #", line)[0], comments=True)
            assert command in COMMANDS, line
            parser = argparse.ArgumentParser(add_help=False)
            commands.module_of(command).add_arguments(parser)
            if command in ("check", "run", "watch"):  # the program's options follow its name
                words = words[: 1 + next((i for i, w in enumerate(words) if w[0] != "-"), 0)]
            options = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert options <= parser._option_string_actions.keys() | {"--help"}, line


@pytest.mark.parametrize("name", PAGES)
def test_programs_and_extras_that_are_named_exist(name):
    project = (ROOT / "pyproject.toml").read_text()
    made = {line for text in texts_of(Page(name)) for line in text.splitlines() if "new: " in line}
    for text in texts_of(Page(name)):
        for extra in EXTRA.findall(text):
            assert f"\n{extra} = [" in project, text
        for module in re.findall(r"python -m (benchmarks[\w.]*)", text):
            path = ROOT / module.replace(".", "/")
            assert path.is_dir() or path.with_suffix(".py").exists(), text
        for script in re.findall(r"(?:python|torchrun[^\n]*?) ((?:examples|docs)/\w+\.py)", text):
            assert (ROOT / script).exists() or f"new: {script}" in made, text
