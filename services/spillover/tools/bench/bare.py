"""What stands beside us: a bare app on our own server, and a relay such as one writes with aiohttp.

Each does the least that the comparison needs. How they are started is in `servers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import aiohttp
import msgspec
from aiohttp import web

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

JSON_HEADER = (b"content-type", b"application/json")


class Envelope(msgspec.Struct):
    """What a body has to be: JSON throughout, whatever is in the payload."""

    payload: msgspec.Raw


_decode = msgspec.json.Decoder(Envelope).decode


class BareApp:
    """Answers every POST with the same bytes: at once, after a sleep, or never. Looks at what it
    got only if it `reads_json`.

    GET tells how many requests are held, for whoever waits for them all to have come.
    """

    def __init__(
        self,
        answer: bytes,
        *,
        sleep_s: float = 0.0,
        holds: bool = False,
        reads_json: bool = False,
    ) -> None:
        self._start: Message = {
            "type": "http.response.start",
            "status": 200,
            "headers": [JSON_HEADER, (b"content-length", b"%d" % len(answer))],
        }
        self._body: Message = {"type": "http.response.body", "body": answer}
        self._sleep_s = sleep_s
        self._holds = holds
        self._reads_json = reads_json
        self._held = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":
            await self._tell(send)
            return
        parts = []
        more = True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        body = b"".join(parts)
        if self._reads_json:
            _decode(body)
        if self._sleep_s:
            await asyncio.sleep(self._sleep_s)
        if self._holds:
            self._held += 1
            await asyncio.get_running_loop().create_future()
        await send(self._start)
        await send(self._body)

    async def _tell(self, send: Send) -> None:
        held = b'{"queue_length":%d}' % self._held
        length = (b"content-length", b"%d" % len(held))
        await send({**self._start, "headers": [JSON_HEADER, length]})
        await send({"type": "http.response.body", "body": held})


async def serve_relay(upstream: str, listening: Any, on_ready: Callable[[], None]) -> None:
    """Relay every POST to `upstream`, on connections that are kept, until cancelled."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:

        async def relay(request: web.Request) -> web.Response:
            body = await request.read()
            headers = {"content-type": request.content_type}
            async with session.post(upstream + request.path, data=body, headers=headers) as answer:
                content = await answer.read()
            return web.Response(
                body=content, status=answer.status, content_type=answer.content_type
            )

        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/{path:.*}", relay)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.SockSite(runner, listening).start()
            on_ready()
            await asyncio.get_running_loop().create_future()
        finally:
            await runner.cleanup()
