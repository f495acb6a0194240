"""The commands of docs/migrating.md print what it shows, and its files are formatted."""

import pytest

from tests.docs.follow import FILE, follow, write
from tests.docs.markdown import Page
from tests.support.formatting import assert_formatted

PAGE = Page("docs/migrating.md")


@pytest.mark.slow
def test_commands_print_the_output_that_the_page_shows(tmp_path, python):
    follow(PAGE, tmp_path, python)


def test_files_of_the_page_are_formatted(tmp_path):
    for block in PAGE.blocks:
        if FILE.match(block.text):
            write(tmp_path, block.text)
    assert_formatted(tmp_path)
