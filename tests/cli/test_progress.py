"""How far a model is, shown where somebody looks."""

from __future__ import annotations

import importlib.util
import re

import pytest

from spillover.cli import main
from spillover.cli.models.progress import progress_bar, progress_bars


@pytest.fixture
def terminal(monkeypatch):
    """As rich takes it from the environment."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")


def shown(capsys):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)


def test_each_bar_is_as_far_as_it_was_told_last(terminal, capsys):
    with progress_bars(["one", "two"], 8.0) as bar_of:
        for done in (2.0, 4.0, 6.0):
            bar_of("two")(done)
    last = shown(capsys).rstrip().splitlines()[-2:]
    assert [(line.split()[0], re.search(r"\d+%", line)[0]) for line in last] == [
        ("one", "0%"),
        ("two", "75%"),
    ]


PROBING = (
    "sim probing --engine full --producers 2 --consumers 2 --production-rate 1 "
    "--consumption-rate 1 --message-time 0.1 --buffers 2 --max-hops 1 --objects 400"
)
MODELS = {
    "changes": ("sim rebalance --clients 9 --servers a,b --then a --then b --then a,b", 100),
    "periods": ("sim leases --nodes 2 --partitions 4 --periods 4", 75),
    "objects": (PROBING, 100),
    "jobs": ("sim tokens --pool comte8 --jobs 400", 100),
}
"""A model, and how far it is when it tells of it for the last time: at the last but one period."""


@pytest.mark.parametrize("name", MODELS)
def test_models_tell_how_far_they_are(name, terminal, capsys, require):
    """Up to the whole."""
    if name == "jobs":
        require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")
    command, last = MODELS[name]
    assert main([*command.split(), "--json"]) == 0
    bars = [line for line in shown(capsys).splitlines() if line.startswith(name)]
    assert max(int(re.search(r"(\d+)%", line)[1]) for line in bars) == last


def test_where_nobody_looks_nothing_is_shown(monkeypatch, capsys):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with progress_bar("one", 1.0) as on_progress:
        assert on_progress is None
    assert capsys.readouterr() == ("", "")
