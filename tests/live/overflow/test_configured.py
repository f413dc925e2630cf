"""Which stamps of others a node listens to: higher ones than its own, and no nonsense."""

import pytest

from spillover.live.overflow.configured import Configured
from spillover.model.configuration import Stamp

OWN = Stamp(4, "b", 7)


@pytest.mark.parametrize(
    ("told", "is_news"),
    [
        ("5 a 1", True),
        ("4 c 1", True),
        ("4 b 8", True),
        ("4 b 7", False),
        ("4 b 6", False),
        ("4 a 9", False),
        ("3 z 9", False),
        ("", False),
        ("nonsense", False),
        ("5 a", False),
        ("9 " + "a" * 200 + " 9", False),
    ],
)
def test_only_a_higher_stamp_is_news(told, is_news):
    heard = []
    configured = Configured(OWN)
    configured.heard("c", told)  # nobody listens yet
    configured.on_higher = lambda *said: heard.append(said)
    for _ in range(2):  # each time that it says so: the first answer may have been lost
        configured.heard("c", told)
    assert heard == ([("c", Stamp.read(told))] * 2 if is_news else [])


def test_what_a_node_tells_of_its_own():
    """In reports, which come often, only what is not the same everywhere from the start."""
    first, later = Configured(), Configured(OWN)
    assert (first.told, first.reported) == ("0  0", "")
    assert later.told == later.reported == "4 b 7"
    first.go_by(Stamp(5, "a", 1))
    assert first.stamp == Stamp(5, "a", 1)
    assert first.told == first.reported == "5 a 1"
