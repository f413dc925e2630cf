"""A pool's parts fit together, or the field that does not is named."""

import math
from dataclasses import replace

import pytest

from spillover.inputs.pool_file import load_pool
from spillover.model.errors import InputError
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType

POOL = Pool(
    name="small",
    servers=(PoolServer(id="s1", rate=1.0), PoolServer(id="s2", rate=4.0)),
    classes=(
        PoolClass(id="c1", servers=("s1", "s2"), tokens=2),
        PoolClass(id="c2", servers=("s2",), tokens=3),
    ),
    types=(
        PoolType(id="t1", rate=2.0, classes=("c1",)),
        PoolType(id="t2", rate=0.5, classes=("c2",)),
    ),
)


def test_load_is_what_arrives_over_what_can_be_served():
    assert POOL.load == 0.5


@pytest.mark.parametrize("rho", [1e-9, 0.3, 1.0, 2.5, 1e9])
def test_scaling_keeps_the_mix_of_types(rho):
    """The sum is as asked, the proportions are as before, servers and classes are the same."""
    scaled = POOL.at_load(rho)
    assert scaled.load == pytest.approx(rho, rel=1e-12)
    assert scaled.types[0].rate / scaled.types[1].rate == pytest.approx(4, rel=1e-12)
    assert (scaled.servers, scaled.classes) == (POOL.servers, POOL.classes)


@pytest.mark.parametrize("rho", [0, -1, math.inf, math.nan])
def test_a_load_that_is_none(rho):
    with pytest.raises(InputError, match="load: expected a number above 0"):
        POOL.at_load(rho)


def test_tokens_of_all_classes():
    assert [each.tokens for each in POOL.with_tokens(9).classes] == [9, 9]


@pytest.mark.parametrize(
    ("field", "change", "complaint"),
    [
        ("servers", (), "servers: expected at least one server, got none"),
        ("classes", (), "classes: expected at least one class, got none"),
        ("types", (), "types: expected at least one type, got none"),
        ("servers", (PoolServer(id="a b", rate=1),), r"servers\[0\].id: expected 1 to 63 of"),
        (
            "servers",
            (*POOL.servers, PoolServer(id="s1", rate=1)),
            r"servers\[2\].id: expected ids that differ, got 's1' twice",
        ),
        (
            "servers",
            (PoolServer(id="s1", rate=1), PoolServer(id="s2", rate=-1)),
            r"servers\[1\].rate: expected a number above 0, got -1",
        ),
        (
            "types",
            (PoolType(id="t1", rate=math.nan, classes=("c1",)),),
            r"types\[0\].rate: expected a number above 0, got nan",
        ),
        (
            "types",
            tuple(PoolType(id=f"t{k}", rate=1e308, classes=("c1",)) for k in range(2)),
            "types: expected rates with a finite sum",
        ),
        (
            "types",
            (PoolType(id="t1", rate=1, classes=()),),
            r"types\[0\].classes: expected at least one class, got none",
        ),
        (
            "types",
            (PoolType(id="t1", rate=1, classes=("c1", "c9")),),
            r"types\[0\].classes: expected ids of classes \(c1, c2\), got 'c9'",
        ),
        (
            "classes",
            (PoolClass(id="c1", servers=(), tokens=1), POOL.classes[1]),
            r"classes\[0\].servers: expected at least one server, got none",
        ),
        (
            "classes",
            (PoolClass(id="c1", servers=("s3",), tokens=1), POOL.classes[1]),
            r"classes\[0\].servers: expected ids of servers \(s1, s2\), got 's3'",
        ),
        (
            "classes",
            (PoolClass(id="c1", servers=("s1", "s1"), tokens=1), POOL.classes[1]),
            r"classes\[0\].servers: expected each server once, got 's1' twice",
        ),
        (
            "classes",
            (PoolClass(id="c1", servers=("s1",), tokens=0), POOL.classes[1]),
            r"classes\[0\].tokens: expected a number of at least 1, got 0",
        ),
    ],
)
def test_parts_that_do_not_fit(field, change, complaint):
    """Each relation between the parts is checked when the pool is made."""
    with pytest.raises(InputError, match=f"^pool: {complaint}"):
        replace(POOL, **{field: change})


def test_many_ids_are_not_all_named():
    with pytest.raises(InputError, match=r"\(c1, c10, c2, c3, c4, c5, c6, c7, \.\.\.\), got 'x'"):
        replace(load_pool("comte8"), types=(PoolType(id="t1", rate=1, classes=("x",)),))
