"""`spillover sim tokens` as a user meets it: the object, the seed, and what is refused."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from spillover.cli import main

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


@pytest.fixture
def simulated(require, capsys):
    """Run the command with --json; its object."""
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")

    def run_it(*arguments):
        assert main(("sim", "tokens", "--json", *arguments)) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return json.loads(out)

    return run_it


def shape(tree):
    return {name: shape(value) for name, value in tree.items()} if isinstance(tree, dict) else 0


def test_the_object_has_the_fields_of_the_contract(simulated, pool_file):
    """As `exact tokens` gives, and a half-width for each figure."""
    found = simulated("--pool", pool_file, "--load", "1.2", "--jobs", "5000")
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
        ("classes: [c2]", "classes: [c9]", "types[1].classes: expected ids of classes"),
        ("servers: [s1],", "servers: [],", "classes[0].servers: expected at least one"),
        ("classes: [c2]", "classes: []", "types[1].classes: expected at least one"),
        ("rate: 2.0", "rate: -2.0", "servers[1].rate: expected a number above 0"),
        ("tokens: 3", "tokens: 0", "classes[0].tokens: expected a number of at least 1"),
        ("tokens: 3", "tokens: 9000000", "classes: expected at most 100000 tokens in all"),
    ],
)
def test_bad_pools(capsys, pool_file, old, new, complaint):
    """One line that names the file and the field, and exit status 2."""
    Path(pool_file).write_text(POOL.replace(old, new))
    assert refusal(capsys, "--pool", pool_file, "--jobs", "10").startswith(
        f"spillover: {pool_file}: {complaint}"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--jobs", "0"), "--jobs: expected at least 1, got 0"),
        (("--jobs", "many"), "--jobs: expected a whole number, got 'many'"),
        (("--jobs", "10", "--load", "0"), "--load: expected a number above 0, got '0'"),
        (("--jobs", "10", "--load", "nan"), "--load: expected a finite number, got 'nan'"),
        (("--jobs", "10", "--sizes", "pareto"), "--sizes: invalid choice"),
        (("--jobs", "10", "--interruptions", "3"), "--interruptions: expected with --discipline"),
        (("--jobs", "10", "--discipline", "fcfs", "--interruptions", "-1"), "--interruptions: exp"),
    ],
)
def test_bad_options(capsys, arguments, complaint):
    """One line that names the option, and exit status 2."""
    assert complaint in refusal(capsys, "--pool", "comte8", *arguments)


def refusal(capsys, *arguments):
    try:
        status = main(("sim", "tokens", *arguments))
    except SystemExit as ended:
        status = ended.code
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1)
    return err
