"""What a service of the tests says, whatever server carries it: as an ASGI and as a WSGI
application. service.js says the same. Nothing here knows what stands before it.
"""

import asyncio
import gzip
import hashlib
import json
import time
from http import HTTPStatus

PIECES = [b"data: %d\n\n" % number for number in range(4)]
BIG = b"0123456789abcdef" * 4096
BIG_PIECES = 64
"""4 MiB in all: more than sockets on the way hold."""
FILE = bytes(range(256)) * 64
GZIPPED = gzip.compress(b"hello gzip " * 500, mtime=0)
PAUSE_S = 0.01
LONGEST = 1000
"""Pieces of a stream that nobody hears to its end."""
TEXT = [("Content-Type", "text/plain")]
STREAM = [("Content-Type", "text/event-stream")]

left = [0]
"""How many clients have left such a stream."""


def echo(method, query, fields, body):
    """Tell what was asked."""
    told = {"method": method, "query": query, "type": fields.get("content-type")}
    told["sha256"] = hashlib.sha256(body).hexdigest()
    return 200, [("Content-Type", "application/json")], json.dumps(told).encode()


def tagged(_method, _query, fields, _body):
    """Tell of a thing that has a tag, unless the client has it already."""
    if fields.get("if-none-match") == '"abc"':
        return 304, [("ETag", '"abc"')], b""
    return 200, [*TEXT, ("ETag", '"abc"')], b"tagged"


def file(_method, _query, fields, _body):
    """Give a file, or the part of it that is asked for."""
    if "range" not in fields:
        return 200, [*TEXT, ("Accept-Ranges", "bytes")], FILE
    first, last = map(int, fields["range"].partition("=")[2].split("-"))
    told = f"bytes {first}-{last}/{len(FILE)}"
    return 206, [*TEXT, ("Content-Range", told)], FILE[first : last + 1]


def headers(_method, _query, fields, _body):
    """Tell some headers of the request."""
    seen = sorted(name for name in fields if name.startswith("x-h"))
    return 200, TEXT, f"{fields.get('host')} {seen}".encode()


def cookie(_method, _query, fields, _body):
    """Tell the client's cookies, and set two."""
    told = [("Set-Cookie", "a=1; Path=/"), ("Set-Cookie", "b=2; HttpOnly")]
    return 200, [*TEXT, *told], fields.get("cookie", "").encode()


def count_left(_method, _query, _fields, _body):
    """Tell how many clients have left."""
    return 200, TEXT, b"%d" % left[0]


BY_PATH = {
    "/echo": echo,
    "/etag": tagged,
    "/range": file,
    "/headers": headers,
    "/cookie": cookie,
    "/left": count_left,
    "/small": (200, TEXT, b"hello"),
    "/empty": (200, TEXT, b""),
    "/none": (204, [], b""),
    "/moved": (301, [*TEXT, ("Location", "/small?x=1")], b"moved"),
    "/broken": (500, TEXT, b"broken"),
    "/gzip": (200, [*TEXT, ("Content-Encoding", "gzip")], GZIPPED),
    "/many": (200, [*TEXT, *((f"X-O{number}", "v" * 20) for number in range(90))], b"m"),
}


def answer(method, path, query, fields, body):
    """Return status, headers and body of what is said at once."""
    if path.startswith("/p/"):
        return 200, TEXT, f"{path} {query}".encode("utf-8", "surrogateescape")
    told = BY_PATH.get(path, (404, TEXT, b"nothing here"))
    return told(method, query, fields, body) if callable(told) else told


def pieces(path):
    """Return what is said piece by piece, with a pause behind each or none; None of other paths."""
    if path == "/stream":
        return STREAM, PIECES, 0.0
    if path == "/long":
        return STREAM, PIECES[:1] * LONGEST, PAUSE_S
    if path == "/big":
        length = str(len(BIG) * BIG_PIECES)
        return [*TEXT, ("Content-Length", length)], [BIG] * BIG_PIECES, 0.0
    return None


async def asgi(scope, receive, send):
    """The application for servers of ASGI."""
    method, path = scope["method"], scope["path"]

    async def begin(status, headers):
        lower = [(name.lower().encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": status, "headers": lower})

    async def end(body):
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})

    if path == "/unread":
        await begin(401, [("Content-Length", "2")])
        await end(b"no")
    elif told := pieces(path):
        await begin(200, told[0])
        if method != "HEAD":
            await _say(told[1], told[2], receive, send)
        await end(b"")
    else:
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        fields = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        query = scope["query_string"].decode("latin-1")
        status, told, body = answer(method, path, query, fields, body)
        length = [] if status in {204, 304} else [("Content-Length", str(len(body)))]
        await begin(status, told + length)
        await end(body)


async def _say(parts, pause_s, receive, send):
    async def leave():
        while (await receive())["type"] != "http.disconnect":
            pass
        left[0] += 1
        saying.cancel()

    async def say():
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            if pause_s:
                await asyncio.sleep(pause_s)

    saying, leaving = asyncio.create_task(say()), asyncio.create_task(leave())
    try:
        await saying
    except asyncio.CancelledError:
        pass
    finally:
        leaving.cancel()


def wsgi(surroundings, start):
    """The application for servers of WSGI."""
    method, path = surroundings["REQUEST_METHOD"], surroundings["PATH_INFO"]
    if path == "/unread":
        start("401 Unauthorized", [("Content-Length", "2")])
        return [b"no"]
    if told := pieces(path):
        start("200 OK", told[0])
        return [] if method == "HEAD" else _saying(told[1], told[2])
    is_chunked = surroundings.get("HTTP_TRANSFER_ENCODING", "").lower() == "chunked"
    length = -1 if is_chunked else int(surroundings.get("CONTENT_LENGTH") or 0)
    body = surroundings["wsgi.input"].read(*[length] * (length >= 0)) if length else b""
    fields = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in surroundings.items()
        if name.startswith(("HTTP_", "CONTENT_")) and value
    }
    query = surroundings.get("QUERY_STRING", "")
    status, told, body = answer(method, path, query, fields, body)
    counted = [] if status in {204, 304} else [("Content-Length", str(len(body)))]
    start(f"{status} {HTTPStatus(status).phrase}", told + counted)
    return [] if method == "HEAD" or not body else [body]


def _saying(parts, pause_s):
    is_whole = False
    try:
        for part in parts:
            yield part
            if pause_s:
                time.sleep(pause_s)
        is_whole = True
    finally:
        left[0] += not is_whole
