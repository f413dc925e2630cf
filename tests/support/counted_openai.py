"""A mock of OpenAI's API (fakellm, from PyPI) that can be asked what became of its answers. The
mock itself is as it comes; counted is what its server is told to send, on the way out.

Run by uvicorn as `support.counted_openai:app`.
"""

import json

from fakellm.server import app as mock

SEEN = {"begun": 0, "whole": 0, "left": 0}
"""Answers of the API: begun, sent whole, and given up before that since nobody was there."""


async def app(scope, receive, send):
    """Answers `/seen` itself."""
    if scope["type"] == "http" and scope["path"] == "/seen":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(SEEN).encode()})
        return
    if scope["type"] != "http":
        await mock(scope, receive, send)
        return
    is_whole = False

    async def counted(message):
        nonlocal is_whole
        await send(message)
        if message["type"] == "http.response.start":
            SEEN["begun"] += 1
        elif not message.get("more_body", False):
            is_whole = True

    try:
        await mock(scope, receive, counted)
    finally:
        SEEN["whole" if is_whole else "left"] += 1
