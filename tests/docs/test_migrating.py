"""The commands of docs/migrating.md print what it shows, and its files are formatted."""

import pytest

from tests.docs.follow import follow
from tests.docs.markdown import Page

PAGE = Page("docs/migrating.md")


@pytest.mark.slow
def test_commands_print_the_output_that_the_page_shows(tmp_path, python):
    follow(PAGE, tmp_path, python)
