"""`spillover sim tokens` as a user meets it: the object, the seed, and what is refused."""

import json
from pathlib import Path

import pytest

POOL = """
servers: [{id: s1, rate: 1.0}, {id: s2, rate: 2.0}]
classes: [{id: c1, servers: [s1], tokens: 3}, {id: c2, servers: [s1, s2], tokens: 2}]
types: [{id: t1, rate: 1.0, classes: [c1, c2]}, {id: t2, rate: 1.5, classes: [c2]}]
"""


@pytest.fixture
def pool_file(tmp_path):
    path = tmp_path / "pool.yaml"
    path.write_text(POOL)
    return str(path)


def shape(tree):
    return {name: shape(value) for name, value in tree.items()} if isinstance(tree, dict) else 0


def test_the_object_has_the_fields_of_the_contract(numba, told, pool_file):
    """As `exact tokens` gives, and a half-width for each figure."""
    words = ("--pool", pool_file, "--load", "1.2", "--jobs", "5000", "--json")
    status, out, err = told("sim", "tokens", *words)
    assert (status, err) == (0, "")
    found = json.loads(out)
    figures = {name: found[name] for name in ("blocking", "occupancy", "idle")}
    assert set(figures["blocking"]) == {"average", "per_type"}
    assert set(figures["blocking"]["per_type"]) == {"t1", "t2"}
    assert set(figures["idle"]) == {"s1", "s2"}
    assert shape(found["ci95"]) == shape(figures)
    assert (found["jobs"], found["load"]) == (5000, pytest.approx(1.2))
    assert 0 < found["occupancy"] < 1


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("rate: 2.0", "rate: -2.0", "servers[1].rate: expected a number above 0"),
        ("tokens: 3", "tokens: 9000000", "classes: expected at most 100000 tokens in all"),
    ],
)
def test_bad_pools(refused, pool_file, old, new, complaint):
    Path(pool_file).write_text(POOL.replace(old, new))
    said = refused("sim", "tokens", "--pool", pool_file, "--jobs", "10")
    assert said.startswith(f"{pool_file}: {complaint}")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--jobs 0", "--jobs: expected at least 1, got 0"),
        ("--jobs many", "--jobs: expected a whole number, got 'many'"),
        ("--jobs 10 --load 0", "--load: expected a number above 0, got '0'"),
        ("--jobs 10 --sizes pareto", "--sizes: invalid choice"),
        ("--jobs 10 --interruptions 3", "--interruptions: expected with --discipline"),
        ("--jobs 10 --discipline fcfs --interruptions -1", "--interruptions: exp"),
    ],
)
def test_bad_options(refused, options, complaint):
    assert complaint in refused("sim", "tokens", "--pool", "comte8", *options.split())
