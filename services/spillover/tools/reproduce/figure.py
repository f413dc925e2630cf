"""What a figure to reproduce is made of: how it is computed, judged, drawn and explained.

One module a document holds such figures; nothing is computed or drawn here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import matplotlib.figure

OnProgress: TypeAlias = Callable[[float], None]
"""Told now and then which share is done, 0..1."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long simulations run."""

    full: bool
    """False: the default precision, minutes for all figures; True: the papers' run lengths."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that the document says in words or formulas, and what came out."""

    text: str
    """What is claimed, in words that need no paper."""
    stated: str
    measured: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a document. Everything in it is importable by name, so that a worker process
    can be told a figure's name alone."""

    name: str
    """The document's short name and the figure's number there: "comte-9"."""
    title: str
    explanation: str
    """For a reader who has not read the paper: what is drawn, what to see. HTML-safe text."""
    compute: Callable[[Effort, int, OnProgress], dict[str, Any]]
    """(effort, seed, on_progress) -> measured values, as JSON can hold them."""
    claims: Callable[[dict[str, Any]], list[Claim]]
    """From the measured values alone: the same whether just computed or read back from a file."""
    draw: Callable[[dict[str, Any], matplotlib.figure.Figure], None]
    """Draws the measured values onto an empty figure."""
