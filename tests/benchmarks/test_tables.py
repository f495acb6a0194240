"""The pages agree with the results."""

import pytest

from benchmarks import tables
from benchmarks.report import RESULTS
from tests.docs.markdown import Page
from tests.support.extension import ROOT


def test_committed_pages_agree_with_the_results():
    assert tables.update(ROOT, RESULTS, check=True) == [], "run: python -m benchmarks.tables"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.md")), ids=lambda path: path.stem)
def test_links_of_the_pages_beside_the_results_exist(path):
    for link in Page(path.relative_to(ROOT)).links:
        assert (path.parent / link.partition("#")[0]).exists(), link
