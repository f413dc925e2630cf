"""Stamps as nodes tell them."""

import pytest

from spillover.model.configuration import Stamp


@pytest.mark.parametrize("stamp", [Stamp(0), Stamp(3, "a-b.c_D", 1_790_000_000_000), Stamp(2)])
def test_what_is_told_is_read(stamp):
    assert Stamp.read(stamp.told) == stamp


@pytest.mark.parametrize(
    "told",
    [
        *("", " ", "1", "1 a", "1 a 2 3", "a 1 2", "1 a b", "-1 a 2", "1 a/b 2", "1  a 2"),
        *("\u0661 a 2", "1" * 17 + " a 2", "1 a " + "2" * 200, "1 " + "a" * 64 + " 2", "1.0 a 2"),
    ],
)
def test_what_is_no_stamp_is_none(told):
    assert Stamp.read(told) is None
