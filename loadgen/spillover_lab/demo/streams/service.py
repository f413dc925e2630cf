"""A service that streams, as many do: server-sent events at a steady pace. It knows nothing of
Spillover.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from typing import Annotated

import uvicorn
from fastapi import FastAPI, Query
from fastapi.responses import StreamingResponse

from spillover.live.process.listening import bind_socket

LAST = "data: [DONE]"
"""The last line of a whole answer, as the clients of language models expect it."""

EVENTS_MAX = 100_000

app = FastAPI(title="a service that streams")


@app.get("/stream")
async def stream(
    events: Annotated[int, Query(ge=0, le=EVENTS_MAX)] = 40,
    period_ms: Annotated[float, Query(ge=0, le=10_000)] = 50,
) -> StreamingResponse:
    """Returns so many events, one each period."""
    return StreamingResponse(_numbered(events, period_ms / 1e3), media_type="text/event-stream")


async def _numbered(events: int, period_s: float) -> AsyncIterator[str]:
    for number in range(events):
        yield f"data: {number}\n\n"
        await asyncio.sleep(period_s)
    yield f"{LAST}\n\n"


def serve(ready: Connection) -> None:
    """Tell the port once it listens, and serve until somebody ends the process."""
    with bind_socket("127.0.0.1", 0) as listening:
        ready.send(listening.getsockname()[1])
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
        asyncio.run(server.serve(sockets=[listening]))
