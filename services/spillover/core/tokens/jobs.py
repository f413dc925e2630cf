"""What a pool of unlike servers keeps of each type of jobs, of each job, and of each that waits."""

from __future__ import annotations

from operator import itemgetter
from typing import Generic

from spillover.core.tokens.bucket import Token
from spillover.core.tokens.fitting import Fitting
from spillover.core.tokens.waiting import V
from spillover.core.tokens.work import Work


class Kind(Generic[V]):
    """One type of jobs; `work` is what one of them takes."""

    __slots__ = ("class_ids", "classes", "fitting", "id", "look", "number", "work")

    def __init__(
        self,
        number: int,
        id_: str,
        classes: dict[int, str],
        fitting: Fitting[V],
        guess_s: float,
    ) -> None:
        self.number = number
        self.id = id_
        self.classes = tuple(classes)
        """The numbers of those that it may join."""
        self.class_ids = tuple(classes.values())
        self.fitting = fitting
        self.work = Work(guess_s)
        self.look = itemgetter(*classes) if len(classes) > 1 else None
        """Picks what concerns these classes, where there is a choice."""


class Job(Generic[V]):
    """What a visit was given that has a token: what `/explain` tells, and what is to be given
    back."""

    __slots__ = (
        "at_number",
        "at_s",
        "end",
        "kind",
        "rank",
        "ranks",
        "ref",
        "refused_on",
        "server",
        "token",
        "work_s",
    )

    def __init__(  # noqa: PLR0917 - with every job
        self,
        ref: int,
        kind: Kind[V],
        token: Token,
        server: int,
        rank: float,
        ranks: tuple[float, ...],
        at_number: int,
        at_s: float,
    ) -> None:
        self.ref = ref
        self.kind = kind
        self.token = token
        self.server = server
        self.rank = rank
        """Of its class, when it took the token (`Bucket.ranks`)."""
        self.ranks = ranks
        """By class that it may join, just after."""
        self.at_number = at_number
        """Of the next release then."""
        self.at_s = at_s
        self.end: bool | None = None
        """Whether it has failed; None unless it ended undone."""
        self.work_s = 0.0
        """How much it has had."""
        self.refused_on: tuple[int, ...] = ()
        """Servers that were left out when it took the token."""


class Place(Generic[V]):
    """Where a visit waits: blocked, or in its seat at a server, where it has its job already."""

    __slots__ = ("job", "kind", "number")

    def __init__(self, number: int, kind: Kind[V]) -> None:
        self.number = number
        """The smaller, the longer ago it came."""
        self.kind = kind
        self.job: Job[V] | None = None
