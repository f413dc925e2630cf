"""How far a model is, shown where somebody looks."""

from __future__ import annotations

import re

import pytest

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


def test_where_nobody_looks_nothing_is_shown(monkeypatch, capsys):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with progress_bar("one", 1.0) as on_progress:
        assert on_progress is None
    assert capsys.readouterr() == ("", "")
