"""What servers that others wrote answer is the same through doors, at home and over one hop, as it
is directly: statuses, reasons, headers in order, bodies. What must differ is listed here.
"""

from __future__ import annotations

import os

import pytest

from support import federation, real_services
from support.real_services import Ask, Asking, ask, home_and_hop

service_of = real_services.service_of

JSON = "Content-Type: application/json"
UPLOAD = bytes(range(256)) * 8192
"""2 MiB."""
CHUNKED = b"2710\r\n" + b"x" * 10_000 + b"\r\n7\r\nyyyyyyy\r\n0\r\n\r\n"

OF_HOPS = {b"connection", b"keep-alive", b"transfer-encoding", b"date"}
"""Headers that belong to one connection, and the time of day."""
OURS = {b"spillover-request-id", b"spillover-path", b"server-timing"}
"""Headers that doors add."""
ABSOLUTE = "an absolute target"
"""Doors hand on the path alone (RFC 9112 3.2.2); some servers take all of it for a path."""
DIFFER = {
    "uvicorn": set(),
    "node": {ABSOLUTE},
    "gunicorn-gthread": set(),
    "waitress": set(),
    "uwsgi": {ABSOLUTE, "chunks"},  # it reads no chunks: a door makes one body of them
}
"""What must differ, by server."""


def chunked(body):
    """A request that has such a body."""
    head = ask("POST", "/echo", "Content-Type: text/plain", "Transfer-Encoding: chunked")
    return head._replace(raw=head.raw + body)


ASKS = {
    "small": ask("GET", "/small"),
    "large": ask("GET", "/big"),
    "a stream": ask("GET", "/stream"),
    "nothing": ask("GET", "/empty"),
    "no content": ask("GET", "/none"),
    "not found": ask("GET", "/nowhere"),
    "an error": ask("GET", "/broken"),
    "a redirect": ask("GET", "/moved"),
    "a tag": ask("GET", "/etag"),
    "not modified": ask("GET", "/etag", 'If-None-Match: "abc"'),
    "a whole file": ask("GET", "/range"),
    "a part of it": ask("GET", "/range", "Range: bytes=10-99"),
    "compressed": ask("GET", "/gzip", "Accept-Encoding: gzip"),
    "cookies": ask("GET", "/cookie", "Cookie: x=1; y=2"),
    "many headers": ask("GET", "/many"),
    "many headers of a request": ask("GET", "/headers", *(f"X-H{n}: {n}" for n in range(60))),
    "a long header": ask("GET", "/headers", f"X-H: {'v' * 7500}"),
    "a long query": ask("GET", f"/small?{'q' * 7000}"),
    "odd paths": ask("GET", "/p//a/../b/./c%2Fd;v=1?x=%zz&%20+"),
    "UTF-8 in a path": ask("GET", "/p/%C3%A9/%C3%BC%20x.txt?k=%E2%82%AC"),
    ABSOLUTE: ask("GET", "http://service.example/small"),
    "HEAD": ask("HEAD", "/small"),
    "HEAD of much": ask("HEAD", "/big"),
    "HEAD of a stream": ask("HEAD", "/stream"),
    "HEAD of no content": ask("HEAD", "/none"),
    "HEAD of nothing there": ask("HEAD", "/nowhere"),
    "OPTIONS": ask("OPTIONS", "/echo"),
    "a preflight": ask(
        "OPTIONS", "/echo", "Origin: http://x", "Access-Control-Request-Method: PUT"
    ),
    **{name: ask(name, "/echo", JSON, body=b"{}") for name in ("PUT", "PATCH", "DELETE", "QUERY")},
    "GET with a body": ask("GET", "/echo", JSON, body=b'{"q": 1}'),
    "DELETE without one": ask("DELETE", "/echo"),
    "POST": ask("POST", "/echo?a=1&b=%20", JSON, body=b'{"a": "\xc3\xa9"}'),
    "POST of nothing": ask("POST", "/echo", "Content-Length: 0"),
    "POST of much": ask("POST", "/echo", "Content-Type: application/octet-stream", body=UPLOAD),
    "chunks": chunked(CHUNKED),
    "no chunks": chunked(b"0\r\n\r\n"),
    "Expect": ask("POST", "/echo", "Expect: 100-continue", JSON, body=b"{}"),
}


async def answer_to(port, asked: Ask):
    """What a client hears on a connection of its own."""
    asking = Asking(port)
    try:
        read = await asking.ask(asked)
    finally:
        asking.close()
    assert read.is_whole
    left_out = OF_HOPS | OURS
    fields = [(name.lower(), value) for name, value in read.fields]
    return {
        "start": read.start.partition(b" ")[2],
        "headers": [field for field in fields if field[0] not in left_out],
        "body": read.body,
    }


IS_WHOLE = "SPILLOVER_REQUIRE_ALL" in os.environ
USUAL = ("uvicorn", "node", "uwsgi")
"""The servers of `make test`: the others are asked where all is installed, in CI."""


@pytest.mark.parametrize("kind", DIFFER if IS_WHOLE else USUAL)
def test_answers_are_the_same_through_doors(kind, service_of):
    service = service_of(kind)
    differences = {}

    async def main():
        async with home_and_hop(f"proxy:{service.url}") as here:
            for name, asked in ASKS.items():
                direct = await answer_to(service.port, asked)
                for door in "ba":
                    read = await answer_to(here.ports[door], asked)
                    if read != direct:
                        differences[name, door] = direct, read

    federation.run(main)
    inherent = {(name, door) for name in DIFFER[kind] for door in "ba"}
    assert not {asked: told for asked, told in differences.items() if asked not in inherent}
    assert differences.keys() == inherent
