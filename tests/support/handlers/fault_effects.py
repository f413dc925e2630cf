"""Handlers whose effect can be counted from outside: one line for each time that they ran.

Imported by the nodes under test, which run in this directory, and by nothing else.
"""

from __future__ import annotations

import asyncio
import os
import time

EFFECTS = os.environ.get("SPILLOVER_TEST_EFFECTS", os.devnull)
"""The file of the lines; one write with O_APPEND each, so that no two processes mix theirs."""


def _leave(payload, ctx) -> None:
    descriptor = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{payload['work']} {ctx.id} {ctx.cluster}\n".encode())
    finally:
        os.close(descriptor)


def run(payload, ctx):
    """On a thread: it cannot be stopped. The effect comes first, then the time it takes."""
    _leave(payload, ctx)
    time.sleep(payload["hold_ms"] / 1e3)
    return {"work": payload["work"]}


async def run_async(payload, ctx):
    """On the node's loop: it can be cancelled, after its effect."""
    _leave(payload, ctx)
    await asyncio.sleep(payload["hold_ms"] / 1e3)
    return {"work": payload["work"]}
