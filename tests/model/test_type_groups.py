"""Groups of types: as a twin says that compares each type with each other one."""

from hypothesis import given
from hypothesis import strategies as st

from spillover.model.type_groups import TypeGroups
from spillover.model.unlike_servers import JobType, Server, UnlikeServers

SERVERS = ("s1", "s2", "s3")
TYPES = ("llm", "image", "text", "sound")
POOLS = st.dictionaries(
    st.sampled_from(TYPES), st.sets(st.sampled_from(SERVERS), min_size=1), min_size=1
)
FEDERATIONS = st.dictionaries(st.sampled_from("abc"), st.none() | POOLS, min_size=1)


def groups_of(federation):
    return TypeGroups.of(
        {
            cluster: None
            if joined is None
            else UnlikeServers.of(
                tuple(Server(id=one) for one in SERVERS),
                types=tuple(JobType(id=k, classes=tuple(may)) for k, may in joined.items()),
            )
            for cluster, joined in federation.items()
        }
    )


@given(federation=FEDERATIONS)
def test_two_types_are_together_where_each_cluster_treats_them_alike(federation):
    found = groups_of(federation)
    named = {kind for joined in federation.values() if joined for kind in joined}

    def classes_of(kind):
        return [joined.get(kind) for joined in federation.values() if joined is not None]

    assert sorted(kind for group in found.groups for kind in group.types) == sorted(named)
    for one in named:
        for other in named:
            together = found.index_of(one) == found.index_of(other)
            assert together == (classes_of(one) == classes_of(other)), (one, other)


@given(federation=FEDERATIONS)
def test_a_group_is_served_where_its_types_may_join_a_class(federation):
    """A cluster with servers alike serves every type."""
    found = groups_of(federation)
    for group in found.groups:
        assert group.id == min(group.types)
        for kind in group.types:
            assert found.groups[found.index_of(kind)] is group
            assert group.served_by == {
                cluster
                for cluster, joined in federation.items()
                if joined is None or kind in joined
            }
    assert found.plain == {cluster for cluster, joined in federation.items() if joined is None}
    assert found.index_of("nobody's") is None


@given(federation=FEDERATIONS, order=st.permutations("abc"))
def test_the_order_of_clusters_makes_no_difference(federation, order):
    """Nodes number the groups; all must number them alike."""
    other = {cluster: federation[cluster] for cluster in order if cluster in federation}
    assert groups_of(federation) == groups_of(other)


def test_types_within_reach_are_those_of_the_cluster_and_its_neighbors():
    found = groups_of({"a": {"llm": {"s1"}}, "b": {"image": {"s1"}}, "c": {"text": {"s2"}}})
    assert set(found.reached_from("a", ["b"])) == {"llm", "image"}
    assert set(found.reached_from("c", [])) == {"text"}
