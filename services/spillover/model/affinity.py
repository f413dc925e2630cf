"""What sites know of places that keep what they have done, and what is told of them. A place is
what runs requests: a service behind a handler.
"""

from __future__ import annotations

from typing import NamedTuple

PLACES_MAX = 64
"""The most places of one site that a report tells of."""


class PlaceLoad(NamedTuple):
    """The load of one place, as its site tells neighbors."""

    wait: float
    """The work that comes before what is sent there now; WORK_MAX where nothing can be."""
    busy: float
    """The share of the last time in which it had work pending."""
    work_per_s: float
    """The work that it does in a second; 0 where that is not known yet."""
    taken: float
    """The work that it has taken on in all."""


class OwnPlace(NamedTuple):
    """A place of the own site, as it is for one request."""

    wait_s: float
    busy: float
    reusable: float
    """The work of the request that it is expected to have done already."""


class SessionWork(NamedTuple):
    """A request as affinity sees it at its home, and the places there that can run it."""

    session: int
    """The number of its session; 0 is none."""
    work: float
    work_per_s: float
    """The work that a place here does in a second; 0 where that is not known yet."""
    places: tuple[OwnPlace, ...]


class RanAt(NamedTuple):
    """Where a request ran, as its answer tells."""

    place: int
    """The number of the place at its site."""
    taken: float
    """The work that the place had taken on then, that of this request included."""
    reused: float
    """The work of the request that it had not to do again, as far as is known there."""
