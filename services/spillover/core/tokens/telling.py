"""What users read of a pool of unlike servers: its state. What a job was given is in `grants`."""

from __future__ import annotations

from typing import Any

from spillover.core.tokens.facts import TokenFacts
from spillover.core.tokens.waiting import V


def told(pool: TokenFacts[V]) -> dict[str, Any]:
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


def _not_done(pool: TokenFacts[V]) -> dict[int, list[dict[str, Any]]]:
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
