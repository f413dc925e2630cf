"""The content of a node's console: the federation, the newest decisions taken here, drain and
resume.

It is only what the page draws, since it is sent several times a second. How the page draws it is
not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import BaseModel

from spillover import __version__
from spillover.apps.http.console.console import Console
from spillover.apps.http.console.operators import Operators
from spillover.apps.node.federation import Federation
from spillover.apps.node.pool_view import TokensState
from spillover.apps.node.views import NeighborState, NodeState, Unreachable
from spillover.core.overflow.decisions import Decision
from spillover.core.overflow.events import Drain, Resume
from spillover.live.overflow.shell import NodeShell
from spillover.model.ids import tenant_of

PERIOD_S = 0.2
POOL_ROWS_MAX = 24
"""The most servers, classes and types of a pool that are shown, of each."""

NOT_DONE_MAX = 4
"""The most types that a server does not do that are shown."""

CONFIGURATION_SHOWN = {"version", "by", "superseded", "removed"}
"""The fields of a configuration that are shown: other versions of a node may tell more."""

NOT_SHOWN = ""
"""The text in place of the names of tenants' requests: all who may look at the page see the
same."""

DECISIONS_MAX = 30
"""The most decisions in one update. Beyond 150 a second the page misses some."""


def node_console(shell: NodeShell, federation: Federation, operators: Operators) -> Console:
    """Returns the console of one node, to be mounted on its app."""

    async def look() -> bytes:
        return await _update(shell, federation)

    return Console(
        "node",
        {
            "name": shell.cluster.id,
            "topology": shell.topology.name,
            "version": __version__,
            "testbed": operators.testbed,
        },
        look,
        period_s=PERIOD_S,
        actions={
            "drain": lambda: shell.feed(Drain(shell.leaving.lame_duck_s)),
            "resume": lambda: shell.feed(Resume()),
        },
        operators=operators,
    )


async def _update(shell: NodeShell, federation: Federation) -> bytes:
    shown = await federation.show()
    return msgspec.json.encode(
        {
            "at_ms": round(shell.now_s * 1e3, 1),
            "clusters": [cluster_view(name, state) for name, state in shown.clusters.items()],
            "links": [[*link.between, link.delay_ms] for link in shown.links],
            "decisions": _decisions(shell),
        }
    )


def cluster_view(name: str, state: NodeState | Unreachable) -> dict[str, Any]:
    """Returns what the page draws of one cluster. The names are those of `/state`; counts are of
    all time, so that the page can take differences."""
    if isinstance(state, Unreachable):
        return {"id": name, "unreachable": True, "last_seen_s": state.last_seen_s}
    return {
        "id": name,
        "url": state.url,
        "servers": state.servers,
        "busy": state.busy,
        "queue_length": state.queue_length,
        "accept_probability": state.accept_probability,
        "neighborhood_accept_probability": round(state.neighborhood_accept_probability, 4),
        "policy": state.policy,
        "shadow": None if state.shadow is None else state.shadow.model_dump(),
        "home_load": state.home_load,
        "foreign_waiting": state.foreign_waiting,
        "pulls": state.pulls,
        "version": state.version,
        "configuration": state.configuration.model_dump(include=CONFIGURATION_SHOWN),
        "clients": state.clients.model_dump(),
        "draining": state.draining,
        "drained": state.drained,
        "down": state.down,
        "stuck": state.stuck,
        "epoch": state.ledger.epoch,
        "home": state.ledger.home,
        "forwards": state.forwards,
        "answered": state.answered,
        "system_time_sum_ms": round(state.system_time_sum_ms, 3),
        "failed": state.failed,
        "rejected": state.rejected,
        "expired": state.expired,
        "refused": state.refused,
        "recent": {"p50_ms": state.recent.p50_ms, "p99_ms": state.recent.p99_ms},
        "health": state.health,
        "degraded": state.degraded,
        "failed_share": round(state.failed_share, 4),
        "tokens": None if state.tokens is None else _pool(state.tokens),
        "neighbors": [_neighbor(neighbor) for neighbor in state.neighbors],
    }


def _pool(tokens: TokensState) -> dict[str, Any]:
    """Returns the first rows of each table of a pool, with how many there are."""
    tables: dict[str, Sequence[BaseModel]] = {
        "servers": [
            server.model_copy(update={"not_done": server.not_done[:NOT_DONE_MAX]})
            for server in tokens.servers[:POOL_ROWS_MAX]
        ],
        "classes": tokens.classes,
        "types": tokens.types,
    }
    return {
        "jobs": tokens.jobs,
        "held": sum(each.held for each in tokens.classes),
        "limit": sum(each.limit for each in tokens.classes),
        "counts": {
            "servers": len(tokens.servers),
            "classes": len(tokens.classes),
            "types": len(tokens.types),
        },
        **{
            name: [row.model_dump() for row in rows[:POOL_ROWS_MAX]]
            for name, rows in tables.items()
        },
    }


def _neighbor(state: NeighborState) -> dict[str, Any]:
    return {
        "id": state.id,
        "accept_probability": round(state.accept_probability, 4),
        "neighborhood_accept_probability": round(state.neighborhood_accept_probability, 4),
        "queue_length": state.queue_length,
        "age_ms": None if state.age_ms is None else round(state.age_ms, 1),
        "alive": state.alive,
        "forwards": state.forwards,
        "pulls": state.pulls,
        "degraded": state.degraded,
        "link": None if state.link is None else state.link.model_dump(),
    }


def _decisions(shell: NodeShell) -> list[dict[str, Any]]:
    """Returns the newest decisions, the newest first."""
    return [_decision(one) for one in shell.machine.decider.log.newest(DECISIONS_MAX)]


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "id": NOT_SHOWN if tenant_of(decision.request_id) else decision.request_id,
        "at_ms": round(decision.at_s * 1e3, 3),
        "outcome": decision.outcome,
        "neighbor": decision.neighbor,
        "queue_length": decision.queue_length,
        "busy": decision.busy,
        "servers": decision.servers,
        "hops": decision.hops,
        "accept_probability": round(decision.accept_probability, 4),
    }
