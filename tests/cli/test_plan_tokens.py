"""`spillover plan tokens`: the object, the table, the picture, and one line for what is wrong."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from spillover.cli import main
from spillover.model.extras import how_to_get

pytestmark = pytest.mark.meanwhile

POOL = """\
servers: [{id: s1, rate: 1}, {id: s2, rate: 4}]
classes: [{id: c1, servers: [s1], tokens: 6}, {id: c2, servers: [s2], tokens: 6}]
types: [{id: all, rate: 5, classes: [c1, c2]}]
"""

PAGE = Path(__file__).parents[2] / "services" / "docs" / "tokens.md"

ROW = {"tokens", "blocking", "above_ideal", "occupancy", "jobs", "time_ms", "slowdown"}


@pytest.fixture(autouse=True)
def _numpy(require):
    require(importlib.util.find_spec("numpy"), "numpy, from the extra `sim`")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pool.yaml"
    path.write_text(POOL, encoding="utf-8")
    return path


def ask(capsys, *options):
    assert main(["plan", "tokens", "--json", *options]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    return json.loads(out)


def test_the_object(file, capsys):
    """The curve, the file's own limits among it, and what is recommended."""
    found = ask(capsys, "--pool", str(file), "--blocking", "0.1")
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


def test_other_goals(file, capsys):
    """One of three; without any, a hundredth above the best."""
    slow = ask(capsys, "--pool", str(file), "--slowdown", "2.5")
    assert slow["best"]["slowdown"] <= 2.5
    quick = ask(capsys, "--pool", str(file), "--time-ms", "800")
    assert quick["best"]["time_ms"] <= 800
    assert ask(capsys, "--pool", str(file), "--load", "0.5")["goal"] == {"above_ideal": 0.01}


def test_the_table(file, capsys):
    """For people, on stderr: with the rows that matter marked, and the limits to copy."""
    assert main(["plan", "tokens", "--pool", str(file), "--slowdown", "2.5"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "pool pool, load 1" in err
    for said in ("best if all alike", "as given", "recommended: {c1: ", "no dispatcher blocks"):
        assert said in err
    assert "at once" not in err


@pytest.mark.slow
def test_the_page_says_what_comes_out(file, capsys):
    """Its pool, its command, and the shares that it names."""
    page = PAGE.read_text(encoding="utf-8")
    file.write_text(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1], encoding="utf-8")
    command = re.search(r"^\$ spillover (plan tokens .*)$", page, re.MULTILINE)[1]
    assert main(command.replace("pool.yaml", str(file)).split()) == 0
    assert "recommended: {on-big: " in capsys.readouterr().err
    found = ask(capsys, "--pool", "comte8", "--load", "1", "--slowdown", "3")
    shares = [found[name]["blocking"]["average"] for name in ("best", "uniform")]
    assert [f"{share:.1%}" for share in shares] == [
        f"{share}%" for share in re.findall(r"\d\.\d(?= %)", page)
    ]
    curve = [found["curve"][tokens - 1]["above_ideal"] for tokens in (10, 6, 1)]
    told = [float(share) for share in re.findall(r"within (0\.\d+)", page)]
    assert curve == pytest.approx(told, abs=0.0006)


def test_what_nodes_do_otherwise_is_said(file, capsys):
    """A class of several servers: the model pools them. And a goal that is missed."""
    file.write_text(POOL.replace("[s1]", "[s1, s2]"), encoding="utf-8")
    assert main(["plan", "tokens", "--pool", str(file), "--at-most", "2"]) == 0
    err = capsys.readouterr().err
    assert "all servers of its class at once (c1); a node runs it on one" in err
    assert "above that with 2 tokens a class" in err


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["comte8", "comte11"])
def test_the_curve_is_drawn(pool, require, tmp_path, capsys):
    """Into the file that was named, whole or not at all."""
    require(importlib.util.find_spec("matplotlib"), "matplotlib, from the extra `report`")
    path = tmp_path / "limits.svg"
    options = ["--at-most", "3", "--plot", str(path)]
    assert main(["plan", "tokens", "--pool", pool, *options]) == 0
    capsys.readouterr()
    assert "<svg" in path.read_text(encoding="utf-8")
    assert [each.name for each in tmp_path.iterdir()] == ["limits.svg"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "usage: one of the arguments --pool --from is required"),
        (["--pol", "comte8"], "usage: unknown option --pol, did you mean --pool?"),
        (["--pool", "nope"], "nope: expected a built-in pool (comte8, comte11) or a YAML file"),
        (["--pool", "comte8", "--load", "0"], "usage: --load: expected a number above 0, got '0'"),
        (["--pool", "comte8", "--blocking", "0"], "usage: --blocking: expected a number above 0"),
        (
            ["--pool", "comte8", "--blocking", "0.1", "--slowdown", "2"],
            "usage: --slowdown: not allowed with argument --blocking",
        ),
        (
            ["--pool", "comte8", "--load", "2", "--blocking", "0.2"],
            "--blocking: expected more than 0.5, which no number of tokens avoids at this load;",
        ),
        (["--pool", "comte8", "--slowdown", "0.5"], "--slowdown: expected at least 1, the mean"),
        (
            ["--pool", "comte8", "--at-most", "0"],
            "usage: --at-most: expected a whole number from 1 to 1000, got '0'",
        ),
        (["--pool", "comte8", "--plot", "x.txt"], "--plot: expected a name ending in .pdf"),
        (["--pool", "comte8", "--for-s", "9"], "--for-s: expected with --from alone"),
        (
            ["--pool", "comte8", "--from", "http://h:1"],
            "usage: --from: not allowed with argument --pool",
        ),
        (["--from", "h:1"], "usage: --from: expected http(s)://HOST[:PORT], got 'h:1'"),
    ],
)
def test_bad_options(options, complaint, require, capsys):
    require(importlib.util.find_spec("matplotlib"), "matplotlib, from the extra `report`")
    refused(capsys, options, complaint)


def test_a_pool_too_large(file, capsys):
    """The file is named, and what to do instead."""
    ids = range(12)
    servers = [f"{{id: s{k}, rate: 1}}" for k in ids]
    classes = [f"{{id: c{k}, servers: [s{k}, s{(k + 1) % 12}], tokens: 6}}" for k in ids]
    types = [f"{{id: t{k}, rate: 1, classes: [c{k}, c{(k + 5) % 12}]}}" for k in ids]
    text = [f"{name}: [{', '.join(entries)}]\n" for name, entries in (
        ("servers", servers), ("classes", classes), ("types", types)
    )]  # fmt: skip
    file.write_text("".join(text), encoding="utf-8")
    said = refused(capsys, ["--pool", str(file)], f"{file}: classes: expected a pool that ")
    assert "spillover sim tokens" in said


def test_limits_too_large_to_solve(file, capsys):
    """They have no row; the others have."""
    file.write_text(POOL.replace("tokens: 6", "tokens: 9000000"), encoding="utf-8")
    assert ask(capsys, "--pool", str(file), "--slowdown", "2")["given"] is None


def test_plan_itself_is_as_it_was(capsys):
    """Servers of a topology; another word is no form."""
    for words in ([], ["tokns"], ["--pool", "x"]):
        assert main(["plan", *words]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    for words in (["plan", "--help"], ["plan", "tokens", "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
    assert "--pool F" in capsys.readouterr().out


def refused(capsys, options, complaint):
    assert main(["plan", "tokens", "--json", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"spillover: {complaint}")
    assert err.count("\n") == 1
    return err


def test_without_the_extra(monkeypatch, capsys):
    """It is named."""
    monkeypatch.setitem(sys.modules, "numpy", None)
    refused(capsys, ["--pool", "comte8"], f"numpy: plan tokens needs {how_to_get('sim')}")
