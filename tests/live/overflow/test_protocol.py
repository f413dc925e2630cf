"""Which versions of what nodes say to each other are spoken, and what is said of that."""

import pytest

from spillover.live.overflow.protocol import (
    TOLD_MAX,
    VERSION,
    VERSIONS,
    is_of_another_version,
    read_versions,
)


@pytest.mark.parametrize(
    ("path", "is_another"),
    [
        *((f"/peer/v{version}/forward", False) for version in VERSIONS),
        (f"/peer/v{VERSION}", False),
        (f"/peer/v{VERSION + 1}/forward", True),
        (f"/peer/v{VERSION + 1}", True),
        ("/peer/v0/x", True),
        ("/peer/v999999999/x", True),
        ("/peer/v9999999999/x", False),
        (f"/peer/v{VERSION + 1}x/forward", False),
        ("/peer/vx/forward", False),
        ("/requests", False),
        (f"/x/peer/v{VERSION + 1}/forward", False),
    ],
)
def test_a_call_of_another_version_is_known_by_its_path(path, is_another):
    assert is_of_another_version(path) is is_another


@pytest.mark.parametrize(
    ("told", "versions"),
    [
        ("2 1", (2, 1)),
        ("7", (7,)),
        ("999999999", (999_999_999,)),
        ("9999999999", ()),
        ("", ()),
        ("2  1", ()),
        ("2 x", ()),
        ("-1", ()),
        ("\u0663", ()),
        (" ".join(["1"] * (TOLD_MAX + 1)), (1,) * TOLD_MAX),
        (" ".join(["1"] * TOLD_MAX + ["x"]), (1,) * TOLD_MAX),
    ],
)
def test_versions_are_read_as_numbers_and_a_bounded_number_of_them(told, versions):
    assert read_versions(told) == versions
