"""Ticks of logarithmic axes, from a factor of two to many powers of ten."""

from __future__ import annotations

import importlib.util

import pytest

from spillover.cli.models.plotting import plain_ticks


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (46, 110, ["60", "80", "100"]),
        (40, 2600, ["50", "100", "200", "500", "1000", "2000"]),
        (0.005, 110, ["0.01", "0.1", "1", "10", "100"]),
        (5, 20_000_000, ["10", "1000", "100000", "10000000"]),
        (100, 100, []),
    ],
)
def test_ticks_are_written_out(low, high, ticks, require):
    """As many as can be told apart."""
    require(importlib.util.find_spec("matplotlib"), "matplotlib, from the extra `report`")
    from matplotlib.figure import Figure

    axes = Figure(figsize=(6, 4)).subplots()
    axes.set(yscale="log", ylim=(low, high) if low < high else None)
    axes.plot([0, 1], [low, high])
    plain_ticks(axes.yaxis)
    axes.figure.draw_without_rendering()
    found = [
        label.get_text().replace("\N{THIN SPACE}", "")
        for tick, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
        if low <= tick <= high and low < high
    ]
    assert [text for text in found if text in ticks] == ticks
    assert len(found) <= 9
    assert not any("$" in text or "e" in text for text in found)
