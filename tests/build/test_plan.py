"""Tests the time that a build is expected to take."""

import pytest

from _jit_loader.build.plan import Plan

SLOW = {"seconds": 9.0, "precompiled": False}
FAST = {"seconds": 3.0, "precompiled": True}


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ({"a.o": SLOW}, 9.0),
        ({"b.o": FAST}, 3.0),
        ({"b.o": SLOW}, 0),  # without the precompiled header that b.o uses now
        ({"a.o": FAST}, 0),
        ({"a.o": SLOW, "new.o": None}, 0),
        ({}, 0),
    ],
)
def test_expected_time_is_that_of_the_last_build_of_the_same_kind(missing, expected):
    assert Plan({}, missing).expected_seconds({"b.o": []}) == expected
