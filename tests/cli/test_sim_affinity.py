"""`spillover sim affinity` and `sim rivals` from the outside: object, table, bad input."""

import json

import pytest


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


def test_rules_are_played_side_by_side(told, trace):
    command = ("sim", "rivals", "--trace", trace, "--seeds", "2", "--load", "0.5", "--json")
    found = json.loads(told(*command, "--rules", "affinity,sticky,oracle-3")[1])
    assert (found["load"], found["seeds"]) == (0.5, 2)
    assert list(found["rules"]) == ["affinity", "sticky", "oracle-3"]
    ours = found["rules"]["affinity"]
    assert ours["p95_ratio"] == 1.0
    assert 0.0 < ours["p50_s"] <= ours["p95_s"]
    assert 0.0 < ours["found"] < 1.0
    unique = json.loads(told("sim", "affinity", "--trace", trace, "--unique", "--json")[1])
    assert unique["rules"]["affinity"]["found"] == 0.0


def test_a_table_is_shown(told, monkeypatch, trace):
    monkeypatch.setenv("COLUMNS", "200")
    _, out, err = told("sim", "affinity", "--trace", trace, "--rules", "affinity,waits")
    assert "waits" in out + err
    assert "p95 ratio" in out + err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--rules", "sticky"), "--rules: expected"),
        (("--rtt-ms", "1,x"), "--rtt-ms: expected a finite number"),
        (("--load", "0"), "--load: expected a number above 0"),
        (("--cache-tokens", "1"), "--cache-tokens: expected a whole number from 512"),
        (("--trace", "none.jsonl"), "none.jsonl: expected a readable file"),
    ],
)
def test_bad_input_is_told_in_one_line(refused, trace, arguments, complaint):
    assert complaint in refused("sim", "affinity", "--trace", trace, *arguments)
