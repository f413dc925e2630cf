"""The state of a pool of unlike servers, for users to read, and the grant of a job with reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillover.core.tokens.jobs import Job
from spillover.core.tokens.server import UnlikeServer
from spillover.core.tokens.waiting import V
from spillover.policy.tokens import NONE

if TYPE_CHECKING:
    from spillover.core.tokens.servers import TokenServers

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
        """Returns it as users read it (docs/http.md, /explain). `others` are the classes it
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


def told(pool: TokenServers[V]) -> dict[str, Any]:
    """Returns the state of a pool. A server's `tokens` are those of all its classes: the most jobs
    it can have; `not_done` has the types of which it does nothing (`answers`). `unaccounted` is how
    many tokens are held by no job, or jobs without a token: 0."""
    bucket, kinds = pool.bucket, range(len(pool.class_ids))
    not_done = _not_done(pool)
    counts = [bucket.counts(kind) for kind in kinds]
    held = sum(each["held"] for each in counts)
    of_class: list[list[str]] = [[] for _ in kinds]
    for server in pool.servers:
        for kind in server.classes:
            of_class[kind].append(server.id)
    return {
        "discipline": pool.discipline,
        "order": pool.order,
        "on_block": pool.on_block,
        "jobs": pool.jobs,
        "blocked": pool.blocked.count,
        "unaccounted": abs(held - pool.jobs - pool.seated),
        "servers": [
            {
                "id": server.id,
                "rate": server.rate,
                "state": server.state,
                "jobs": server.running,
                "queued": len(server.line),
                "tokens": sum(bucket.limit(kind) for kind in server.classes),
                "not_done": not_done.get(server.number, []),
            }
            for server in pool.servers
        ],
        "classes": [
            {"id": pool.class_ids[kind], "servers": of_class[kind], **counts[kind]}
            for kind in kinds
        ],
        "types": [
            {
                "id": kind.id,
                "classes": list(kind.class_ids),
                "blocked": len(pool.blocked.lines[kind.number].visits),
                "work_ms": kind.work.mean_s * 1e3,
            }
            for kind in pool.kinds.values()
        ],
    }


def _not_done(pool: TokenServers[V]) -> dict[int, list[dict[str, Any]]]:
    """The types of which a server has done none of its last jobs, by its number."""
    type_ids = [kind.id for kind in pool.kinds.values()]
    told: dict[int, list[dict[str, Any]]] = {}
    for server, kind, run, done_elsewhere in pool.answers.telling():
        told.setdefault(server, []).append(
            {
                "type": type_ids[kind],
                "how": run.how,
                "in_a_row": run.count,
                "done_elsewhere": done_elsewhere,
                "problem": run.problem,
            }
        )
    return told
