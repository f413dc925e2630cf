"""`spillover sim affinity` and `sim rivals` from the outside: object, table, bad input."""

from __future__ import annotations

import json

import pytest

from spillover.cli import main


@pytest.fixture
def trace(tmp_path):
    """Twenty sessions of three turns."""
    lines = [
        json.dumps(
            {
                "timestamp": 1_000 * (20 * turn + session),
                "input_length": 2_048 * turn,
                "output_length": 20,
                "hash_ids": [100 * session + block for block in range(4 * turn)],
            }
        )
        for turn in (1, 2, 3)
        for session in range(20)
    ]
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def result_of(capsys, *arguments):
    assert main((*arguments, "--json")) == 0
    return json.loads(capsys.readouterr().out)


def test_rules_are_played_side_by_side(capsys, trace):
    command = ("sim", "rivals", "--trace", trace, "--seeds", "2", "--load", "0.5")
    told = result_of(capsys, *command, "--rules", "affinity,sticky,oracle-3")
    assert (told["load"], told["seeds"], list(told["rules"])) == (
        0.5, 2, ["affinity", "sticky", "oracle-3"],
    )  # fmt: skip
    ours = told["rules"]["affinity"]
    assert ours["p95_ratio"] == 1.0
    assert 0.0 < ours["p50_s"] <= ours["p95_s"]
    assert 0.0 < ours["found"] < 1.0
    unique = result_of(capsys, "sim", "affinity", "--trace", trace, "--unique")
    assert unique["rules"]["affinity"]["found"] == 0.0


def test_a_table_is_shown(capsys, monkeypatch, trace):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(("sim", "affinity", "--trace", trace, "--rules", "affinity,waits")) == 0
    out, err = capsys.readouterr()
    assert "waits" in out + err
    assert "p95 ratio" in out + err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--rules", "sticky"), "--rules: expected"),
        (("--rtt-ms", "1,x"), "--rtt-ms: expected a finite number"),
        (("--load", "0"), "--load: expected a number above 0"),
        (("--cache-tokens", "1"), "--cache-tokens: expected a whole number from 512"),
        (("--trace", "none.jsonl"), "none.jsonl: expected a readable file"),
    ],
)
def test_bad_input_is_told_in_one_line(capsys, trace, arguments, told):
    assert main(("sim", "affinity", "--trace", trace, *arguments)) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err
