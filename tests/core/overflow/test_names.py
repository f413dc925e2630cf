"""Names belong to one node of a site, and few of them move when nodes come and go."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from spillover.core.overflow.names import owner_of

NODES = st.sets(st.integers(1, 16), min_size=1)


@given(st.text(max_size=20), NODES, st.integers(1, 16))
def test_a_name_moves_only_from_a_node_that_goes_or_to_one_that_comes(name, nodes, other):
    before, after = owner_of(name, nodes), owner_of(name, nodes | {other})
    assert before in nodes
    assert after in {before, other}
    assert owner_of(name, sorted(nodes, reverse=True)) == before


def test_names_are_spread_evenly():
    counts = Counter(owner_of(f"name-{number}", (1, 2, 3, 4)) for number in range(4000))
    assert sum(counts.values()) == 4000
    assert all(900 < count < 1100 for count in counts.values())
