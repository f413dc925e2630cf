"""`spillover exact tokens`: the object, the table, and one line for what is wrong."""

import importlib.util
import json

import pytest

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


def test_the_object(file, told):
    status, out, err = told("exact", "tokens", "--json", "--pool", file)
    assert (status, out.count("\n"), err) == (0, 1, "")
    assert json.loads(out) == {
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
        ((), "usage: the following arguments are required: --pool"),
        (("--pool", "nope"), "nope: expected a built-in pool (comte8, comte11) or a YAML file"),
        (("--pool", "comte8", "--load", "0"), "usage: --load: expected a number above 0, got '0'"),
        (("--pool", "comte8", "--load", "1e308"), "comte8: types[0].rate: expected a number above"),
    ],
)
def test_bad_options(options, complaint, refused):
    assert refused("exact", "tokens", "--json", *options).startswith(complaint)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("rate: 4", "rate: -4", "servers[1].rate: expected a number above 0, got -4"),
        ("tokens: 6", "tokens: 9000000", "classes: expected a pool that is solved with"),
    ],
)
def test_bad_pools(old, new, complaint, file, refused):
    file.write_text(POOL.replace(old, new), encoding="utf-8")
    assert refused("exact", "tokens", "--pool", file).startswith(f"{file}: {complaint}")
