"""`spillover exact tokens`: the object, the table, and one line for what is wrong."""

from __future__ import annotations

import importlib.util
import json

import pytest

from spillover.cli import main

POOL = """\
servers: [{id: s1, rate: 1}, {id: s2, rate: 4}]
classes: [{id: c1, servers: [s1], tokens: 6}, {id: c2, servers: [s2], tokens: 6}]
types: [{id: all, rate: 5, classes: [c1, c2]}]
"""


@pytest.fixture(autouse=True)
def _numpy(require):
    require(importlib.util.find_spec("numpy"), "numpy, from the extra `sim`")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pool.yaml"
    path.write_text(POOL, encoding="utf-8")
    return path


def ask(capsys, *options):
    assert main(["exact", "tokens", "--json", *options]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    return json.loads(out)


def test_the_object(file, capsys):
    """All fields of the object, and nothing else."""
    found = ask(capsys, "--pool", str(file))
    assert found == {
        "blocking": {
            "average": pytest.approx(0.114517, abs=1e-6),
            "per_type": {"all": pytest.approx(0.114517, abs=1e-6)},
        },
        "occupancy": pytest.approx(1 - 0.114517, abs=1e-6),
        "idle": {"s1": pytest.approx(0.004010, abs=1e-6), "s2": pytest.approx(0.142144, abs=1e-6)},
    }


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "usage: the following arguments are required: --pool"),
        (["--pool", "nope"], "nope: expected a built-in pool (comte8, comte11) or a YAML file"),
        (["--pool", "comte8", "--load", "0"], "usage: --load: expected a number above 0, got '0'"),
        (["--pool", "comte8", "--load", "-1"], "usage: --load: expected a number above 0"),
        (["--pool", "comte8", "--load", "nan"], "usage: --load: expected a finite number"),
        (
            ["--pool", "comte8", "--load", "1e308"],
            "comte8: types[0].rate: expected a number above 0, got inf",
        ),
        (["--pool", "comte8", "--policy", "greedy"], "usage: --policy: invalid choice: 'greedy'"),
    ],
)
def test_bad_options(options, complaint, capsys):
    refused(capsys, options, complaint)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("[c1, c2]", "[c1, c3]", "types[0].classes: expected ids of classes (c1, c2), got 'c3'"),
        ("[c1, c2]", "[]", "types[0].classes: expected at least one class, got none"),
        ("[s1]", "[]", "classes[0].servers: expected at least one server, got none"),
        ("[s1]", "[s3]", "classes[0].servers: expected ids of servers (s1, s2), got 's3'"),
        ("rate: 4", "rate: -4", "servers[1].rate: expected a number above 0, got -4"),
        ("rate: 5", "rate: 0", "types[0].rate: expected a number above 0, got 0"),
        ("tokens: 6", "tokens: 0", "classes[0].tokens: expected a number of at least 1, got 0"),
        ("tokens: 6", "tokens: 9000000", "classes: expected a pool that is solved with"),
    ],
)
def test_bad_pools(old, new, complaint, file, capsys):
    """The file is named, the field, and what was expected."""
    file.write_text(POOL.replace(old, new), encoding="utf-8")
    refused(capsys, ["--pool", str(file)], f"{file}: {complaint}")


def refused(capsys, options, complaint):
    assert main(["exact", "tokens", "--json", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"spillover: {complaint}")
    assert err.count("\n") == 1
