"""Reads the headings, links and code blocks of a page as GitHub renders it."""

import functools
import re
from typing import NamedTuple
from urllib.parse import unquote

from markdown_it import MarkdownIt

from tests.support.extension import ROOT


class Block(NamedTuple):
    """A fenced code block: its info string, its text and the heading above it."""

    language: str
    text: str
    heading: str


@functools.cache
class Page:
    """A Markdown file. name is its path relative to the project's root."""

    def __init__(self, name):
        self.path = ROOT / name
        self.headings, self.blocks, self.links, self.code_spans = [], [], [], []
        tokens = MarkdownIt().enable("table").parse(self.path.read_text())
        for before, token in zip([None, *tokens], tokens):
            if token.type == "fence":
                self.blocks.append(Block(token.info, token.content, self.headings[-1]))
            for part in token.children or ():
                if part.type in ("link_open", "image"):
                    self.links.append(unquote(part.attrGet("href") or part.attrGet("src")))
                elif part.type == "code_inline":
                    self.code_spans.append(part.content)
            if before is not None and before.type == "heading_open":
                self.headings.append(token.content)

    @property
    def anchors(self):
        """The anchors that GitHub derives from the headings."""
        return [re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in self.headings]
