"""What a client is told where there is a bug, and what the log gets to find it by."""

from __future__ import annotations

import logging

from spillover.apps.node.exchange import ReplyTo
from spillover.apps.node.problems import Problem
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.logs import Message, OncePerPeriod

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


def answer_internal_error(shell: NodeShell, exchange: ReplyTo, name: str | None) -> None:
    """Called where the exception is handled; with the story of the request if it was known by a
    name."""
    story = [] if name is None else shell.story(name)
    _log.exception(
        Message(
            "internal error",
            request_id=name,
            method=exchange.method,
            path=exchange.path,
            story=story or None,
        )
    )
    internal = Problem("internal", "internal error; the node's log has the details", id=name)
    if story:
        internal.more["story"] = story
    exchange.refuse(internal)
