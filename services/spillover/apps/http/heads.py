"""HEAD is answered wherever GET is: by the same route, without the body."""

from __future__ import annotations

from spillover.apps.http.asgi import AsgiApp, Message, Receive, Scope, Send


class HeadAsGet:
    """An ASGI app around another one that needs to know nothing of HEAD.

    The answer ends with its header, also one that has no end: whoever streams it hears of a
    disconnect from `receive`, as when a client has gone.
    """

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        ended = False

        async def send_head(message: Message) -> None:
            nonlocal ended
            if message["type"] == "http.response.start":
                await send(message)
            elif not ended:
                ended = True
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        # The server keeps the scope that it made: there it stays a HEAD.
        await self._app({**scope, "method": "GET"}, receive, send_head)
