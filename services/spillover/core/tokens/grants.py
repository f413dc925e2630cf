"""What a job on unlike servers was given, and why: for whoever asks later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spillover.core.tokens.jobs import Job
from spillover.core.tokens.server import UnlikeServer
from spillover.core.tokens.waiting import V
from spillover.policy.tokens import NONE

OTHERS_MAX = 8
"""Classes that are told of besides the one that was chosen."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a job was given: the first of the tokens that it may take, and why that one. `releases`
    and `available_s` say how long it had been available. `ranks` are those of the classes
    `compatible`, the one that was chosen among them: by the order `longest-available` the releases
    of their oldest tokens, of which the next was `at_number` then. `rank` is that of the chosen one
    in another order, and None in this."""

    token: str
    class_id: str
    server: str
    releases: int
    available_s: float
    compatible: tuple[str, ...]
    ranks: tuple[float, ...]
    at_number: int
    rank: float | None
    refused_on: tuple[str, ...] = ()
    """Servers that had said before that they surely did not do the job, and so were left out."""

    def as_dict(self) -> dict[str, Any]:
        """Returns it as users read it (contract, section 4, /explain). `others` are the classes it
        could have joined too, the first one first, OTHERS_MAX at most of `others_count`."""
        there = sorted(
            (rank, class_id)
            for rank, class_id in zip(self.ranks, self.compatible, strict=False)
            if rank != NONE and class_id != self.class_id
        )
        own = {} if self.rank is None else {"rank": round(self.rank, 4)}
        return {
            "token": self.token,
            "class": self.class_id,
            "server": self.server,
            "available_releases": self.releases,
            "available_ms": self.available_s * 1e3,
            **own,
            "others": [
                {"class": class_id, **self._told_of(rank)} for rank, class_id in there[:OTHERS_MAX]
            ],
            "others_count": len(there),
            **({"left_out": list(self.refused_on)} if self.refused_on else {}),
        }

    def _told_of(self, rank: float) -> dict[str, Any]:
        if self.rank is None:
            return {"available_releases": self.at_number - 1 - rank}
        return {"rank": round(rank, 4)}


def grant_of(
    job: Job[V], class_ids: Sequence[str], servers: Sequence[UnlikeServer[V]], *, by_rank: bool
) -> Grant:
    """Returns what this job, which has its token still, was given. With every job: what it takes to
    tell it in words is left to whoever asks."""
    token, refused_on = job.token, job.refused_on
    return Grant(
        token.id,
        class_ids[token.kind],
        servers[job.server].id,
        job.at_number - 1 - token.number,
        max(0.0, job.at_s - token.released_s),
        job.kind.class_ids,
        job.ranks,
        job.at_number,
        job.rank if by_rank else None,
        tuple([servers[number].id for number in refused_on]) if refused_on else (),
    )
