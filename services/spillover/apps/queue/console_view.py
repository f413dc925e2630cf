"""The console of a producer shows its own `/state`, and those of the others, asked only while
somebody looks."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from spillover import __version__
from spillover.apps.http.console.console import Console
from spillover.apps.http.console.operators import Operators
from spillover.apps.queue.views import About, queue_state
from spillover.core.queue import events as ev
from spillover.live.queue.shell import QueueShell
from spillover.model.errors import UNREADABLE

PERIOD_S = 0.5

PEERS_SHOWN_MAX = 50

_COUNTS = ("buffers", "buffered", "granted", "dead", "produced", "acknowledged", "parked", "takes")


def queue_console(shell: QueueShell, about: About, *, has_tokens: bool = False) -> Console:
    """Returns the console of one producer, to be mounted on its app."""

    async def look() -> bytes:
        told = await shell.ask_peers("/state", PEERS_SHOWN_MAX)
        others = [{"producer": peer, **_counts(body)} for peer, body in told.items()]
        own = queue_state(shell, about).model_dump()
        return msgspec.json.encode({**own, "others": others})

    return Console(
        "queue",
        {"name": shell.settings.id, "version": __version__, "testbed": False},
        look,
        period_s=PERIOD_S,
        actions={
            "drain": lambda: shell.feed(ev.Drain()),
            "resume": lambda: shell.feed(ev.Resume()),
        },
        operators=Operators(has_tokens=has_tokens),
    )


def _counts(body: bytes | None) -> dict[str, Any]:
    """Returns the numbers of a peer's state that are shown; none for a peer without them."""
    try:
        state = json.loads(body or b"{}")
    except UNREADABLE:
        return {}
    if not isinstance(state, dict):
        return {}
    return {name: state[name] for name in _COUNTS if isinstance(state.get(name), int)}
