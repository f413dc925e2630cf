"""`spillover plan tokens`: the object, the table, the picture, and one line for what is wrong."""

import importlib.util
import json

import pytest

POOL = """\
servers: [{id: s1, rate: 1}, {id: s2, rate: 4}]
classes: [{id: c1, servers: [s1], tokens: 6}, {id: c2, servers: [s2], tokens: 6}]
types: [{id: all, rate: 5, classes: [c1, c2]}]
"""

ROW = {"tokens", "blocking", "above_ideal", "occupancy", "jobs", "time_ms", "slowdown"}


@pytest.fixture(autouse=True)
def _numpy(require):
    require(importlib.util.find_spec("numpy"), "numpy, from the extra `sim`")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pool.yaml"
    path.write_text(POOL, encoding="utf-8")
    return path


def test_the_object(file, told):
    """The curve, the file's own limits among it, and what is recommended."""
    status, out, err = told("plan", "tokens", "--json", "--pool", file, "--blocking", "0.1")
    assert (status, out.count("\n"), err) == (0, 1, "")
    found = json.loads(out)
    assert set(found) == {
        *("pool", "load", "goal", "goal_kept", "ideal", "given", "curve", "uniform", "best"),
        *("searched", "classes_of_several_servers"),
    }
    assert (found["pool"], found["load"]) == ("pool", 1)
    assert found["goal"] == {"blocking": 0.1}
    assert found["ideal"] == {"average": 0, "per_type": {"all": 0}}
    rows = [found["given"], found["uniform"], found["best"], *found["curve"]]
    assert all(set(row) == ROW for row in rows)
    assert found["given"]["tokens"] == {"c1": 6, "c2": 6}
    assert found["given"]["blocking"]["average"] == pytest.approx(0.114517, abs=1e-6)
    assert [row["tokens"]["c1"] for row in found["curve"]] == [*range(1, 11)]
    assert found["given"] == found["curve"][5]
    assert found["best"]["blocking"]["average"] <= 0.1
    assert found["goal_kept"]
    assert found["searched"]


def test_what_nodes_do_otherwise_is_said(file, told):
    """A class of several servers: the model pools them. And a goal that is missed."""
    file.write_text(POOL.replace("[s1]", "[s1, s2]"), encoding="utf-8")
    status, _, err = told("plan", "tokens", "--pool", file, "--at-most", "2")
    assert status == 0
    assert "all servers of its class at once (c1); a node runs it on one" in err
    assert "above that with 2 tokens a class" in err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("", "usage: one of the arguments --pool --from is required"),
        ("--pool comte8 --blocking 0", "usage: --blocking: expected a number above 0"),
        ("--pool comte8 --blocking 0.1 --slowdown 2", "usage: --slowdown: not allowed with argum"),
        ("--pool comte8 --load 2 --blocking 0.2", "--blocking: expected more than 0.5, which no "),
        ("--pool comte8 --slowdown 0.5", "--slowdown: expected at least 1, the mean"),
        ("--pool comte8 --at-most 0", "usage: --at-most: expected a whole number from 1 to 1000"),
        ("--pool comte8 --plot x.txt", "--plot: expected a name ending in .pdf"),
        ("--pool comte8 --for-s 9", "--for-s: expected with --from alone"),
        ("--pool comte8 --from http://h:1", "usage: --from: not allowed with argument --pool"),
        ("--from h:1", "usage: --from: expected http(s)://HOST[:PORT], got 'h:1'"),
    ],
)
def test_bad_options(options, complaint, require, refused):
    require(importlib.util.find_spec("matplotlib"), "matplotlib, from the extra `report`")
    assert refused("plan", "tokens", "--json", *options.split()).startswith(complaint)


def test_a_pool_too_large(file, refused):
    ids = range(12)
    servers = [f"{{id: s{k}, rate: 1}}" for k in ids]
    classes = [f"{{id: c{k}, servers: [s{k}, s{(k + 1) % 12}], tokens: 6}}" for k in ids]
    types = [f"{{id: t{k}, rate: 1, classes: [c{k}, c{(k + 5) % 12}]}}" for k in ids]
    text = [f"{name}: [{', '.join(entries)}]\n" for name, entries in (
        ("servers", servers), ("classes", classes), ("types", types)
    )]  # fmt: skip
    file.write_text("".join(text), encoding="utf-8")
    said = refused("plan", "tokens", "--pool", file)
    assert said.startswith(f"{file}: classes: expected a pool that ")
    assert "spillover sim tokens" in said
