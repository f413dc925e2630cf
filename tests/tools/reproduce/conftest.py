"""Figures made by hand, and what is needed to draw them."""

from __future__ import annotations

import importlib.util

import pytest

from spillover.tools.reproduce.figure import Claim, Figure


@pytest.fixture(autouse=True)
def _extras(require):
    for package, extra in (("matplotlib", "report"), ("numba", "sim"), ("numpy", "sim")):
        require(importlib.util.find_spec(package), f"{package}, from the extra `{extra}`")


@pytest.fixture
def line():
    """A figure of one line; `name` makes it one of a document."""

    def make(name="membership-2", **replaced):
        parts = {
            "title": "A line & its <end>",
            "explanation": "It goes <b>up</b>.",
            "compute": lambda *given: {"x": [1, 2, given[1]]},
            "claims": lambda values: [
                Claim("x < 3 grows", "by 1 & more", f"ends at {values['x'][-1]}", holds=True),
                Claim("x falls", "falls", "does not", holds=False),
            ],
            "draw": lambda values, canvas: canvas.subplots().plot(values["x"]),
        }
        return Figure(name=name, **{**parts, **replaced})

    return make
