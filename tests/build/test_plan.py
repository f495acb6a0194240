"""Tests the time that a build is expected to take."""

import pytest

from _jit_loader.build.plan import Plan


@pytest.mark.parametrize(
    ("missing", "expected"), [({"a.o": {"seconds": 9.0}}, 9.0), ({"a.o": None}, 0), ({}, 0)]
)
def test_expected_time_is_that_of_the_last_build(missing, expected):
    assert Plan({}, missing).expected_seconds() == expected
