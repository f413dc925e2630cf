"""What a reproduced figure is made of: how it is computed, what is stated of it, how it is drawn.

A module for each document holds its `DOCUMENT` and its `FIGURES`; nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Values: TypeAlias = dict[str, Any]
"""What was measured for a figure, as JSON can hold it."""
Check: TypeAlias = Callable[..., bool]


class Effort(StrEnum):
    """How long simulations run."""

    DEFAULT = "default"
    """Minutes for all figures."""
    FULL = "full"
    """The documents' run lengths."""

    def pick(self, default: T, full: T) -> T:
        return full if self is Effort.FULL else default


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A source document, and what a reader has to know of it to understand its figures."""

    prefix: str
    """The names of its figures begin with it."""
    citation: str
    heading: str
    problem: str
    mechanism: str
    reproduced: str
    left_open: str
    """What could not be done as printed, and what was done instead."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that a document says, beside what came out."""

    text: str
    stated: str
    measured: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Statement:
    """A row of a figure's table: what a document says, and how that is judged."""

    text: str
    """What is claimed, in words that need no paper."""
    stated: str
    """The document's own number, formula or words."""
    measure: Callable[[Any], Any]
    """It takes a figure's values and returns what is compared: one thing, or a tuple of several."""
    shown: str
    """The format of what was measured."""
    holds: Check
    """What is expected and with which tolerance, such as `near(2.0, 0.1)`."""

    def judge(self, values: Values) -> Claim:
        """Returns what came out, by the measured values alone."""
        found = self.measure(values)
        parts = found if isinstance(found, tuple) else (found,)
        return Claim(self.text, self.stated, self.shown.format(*parts), bool(self.holds(*parts)))


@dataclass(frozen=True, slots=True)
class Series:
    """One curve of a panel, or its points."""

    x: Sequence[float]
    y: Sequence[float]
    label: str = ""
    style: str = "-"
    """A format of matplotlib's, or `bar`: on top of the bars before."""
    error: Any = None
    """Half-widths, or what is below and above each point."""
    color: str | None = None
    band: Any = None
    """The lower and the upper end of a band around the curve."""
    width: float = 1.3


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    series: Sequence[Series] = ()
    x_label: str = ""
    x_names: Sequence[str] = ()
    """Names of the places 0, 1, 2, ...; none: numbers."""
    log: str = ""
    """The axes that are logarithmic: `x`, `y` or `xy`."""
    y_limits: tuple[float | None, float | None] = (None, None)
    level: float | None = None
    """The height of a line for comparison."""
    columns: Sequence[float] = ()
    """The places of dotted upright lines."""
    rows: Sequence[Sequence[int | None]] = ()
    """Instead of series: a row of colored cells each."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a document. Its name is all that a process is told that computes it."""

    name: str
    """The document's prefix and the figure's number there: "comte-9"."""
    title: str
    explanation: str
    """The text for readers who have not read the paper: what is drawn, what to see. It is safe as
    HTML."""
    compute: Callable[[Effort, int], Values]
    """It takes the effort and the seed."""
    panels: Callable[[Values], Sequence[Panel]]
    statements: Sequence[Statement]
    columns: int = 1
    """So many panels stand side by side."""


def between(low: float, high: float) -> Check:
    """Expects the first thing that was measured within these, ends included."""
    return lambda value, *_: bool(low <= value <= high)


def near(expected: float, tolerance: float) -> Check:
    """Expects less than the tolerance between it and what is stated."""
    return lambda value, *_: abs(value - expected) < tolerance


def below(limit: float) -> Check:
    """Expects less than the limit."""
    return lambda value, *_: bool(value < limit)


def above(limit: float) -> Check:
    """Expects more than the limit."""
    return lambda value, *_: bool(value > limit)


def spread(values: Iterable[float]) -> tuple[float, float, float]:
    """Returns median, smallest and largest."""
    found = list(values)
    return median(found), min(found), max(found)
