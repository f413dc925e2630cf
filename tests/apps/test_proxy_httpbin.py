"""httpbin behind doors: whatever of its API is asked, in whatever way, the answer through no, one
and two hops is the one that it gives directly; and in chains with nginx and HAProxy the one that it
gives through them. `make soak` asks for all of it in all chains, else it is some in one of them."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import threading
import zlib
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import islice
from typing import NamedTuple

import brotlicffi
import httpbin
import pytest
from werkzeug.serving import WSGIRequestHandler, make_server

from spillover.core.overflow.events import ServersDown
from support import federation, relays
from support.proxy_doors import Client, doors

# httpbin leaves it to the collector to close its files.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

EACH_WAY = "SPILLOVER_SOAK_S" in os.environ
WHOLE_S = 100.0

PLACES = {
    "codes": "418",
    "n": "3",
    "offset": "1",
    "value": "60",
    "numbytes": "64",
    "delay": "0.01",
    "qop": "auth",
    "user": "ann",
    "passwd": "secret",
    "algorithm": "SHA-256",
    "stale_after": "never",
    "name": "flavor",
    "etag": "cake",
    "anything": "a/b%2Fc",
    "filename": "favicon.ico",
}
"""What stands in the places of a path."""

PATHS = {
    "/base64/<value>": "/base64/aGVsbG8=",
    "/bytes/<int:n>": "/bytes/100000?seed=1",
    "/stream-bytes/<int:n>": "/stream-bytes/70000?seed=1&chunk_size=999",
    "/stream/<int:n>": "/stream/20",
    "/drip": "/drip?duration=0.02&numbytes=5&delay=0&code=203",
    "/redirect-to": "/redirect-to?url=%2Fget%3Fa%3Db&status_code=307",
    "/response-headers": "/response-headers?X-One=1&X-One=2&x-two=%C3%A9",
    "/cookies/set": "/cookies/set?a=b&c=d",
    "/cookies/delete": "/cookies/delete?a",
    "/range/<int:numbytes>": "/range/4096?chunk_size=1000",
    "/get": "/get?a=1&a=2&b=%20%2f",
    "/anything": "/anything?x=%00%ff",
}
"""Rules for which that would not do."""

WITH_BODY = {"POST", "PUT", "PATCH", "DELETE", "TRACE"}

FORM = (("Content-Type", "application/x-www-form-urlencoded"),)
MORE = (
    ("POST", "/post", FORM, b"a=1&b=%26&a=2"),
    ("POST", "/post", (("Content-Type", "application/octet-stream"),), bytes(range(256)) * 400),
    (
        "POST",
        "/post",
        (("Content-Type", "multipart/form-data; boundary=b"),),
        b'--b\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\n\xff\0\r\n--b--\r\n',
    ),
    ("BREW", "/get", (), b""),
    ("GET", "/nowhere", (), b""),
    ("GET", "/range/4096", (("Range", "bytes=10-99"),), b""),
    ("GET", "/range/4096", (("Range", "bytes=9999-"),), b""),
    ("GET", "/etag/cake", (("If-None-Match", '"cake"'),), b""),
    ("GET", "/etag/cake", (("If-Match", '"pie"'),), b""),
    ("GET", "/cache", (("If-Modified-Since", "Sat, 29 Oct 1994 19:43:31 GMT"),), b""),
    ("GET", "/cookies", (("Cookie", "a=b; c=d"), ("Cookie", "e=f")), b""),
    ("GET", "/basic-auth/ann/secret", (("Authorization", "Basic YW5uOnNlY3JldA=="),), b""),
    ("GET", "/bearer", (("Authorization", "Bearer x"),), b""),
    ("GET", "/user-agent", (("User-Agent", "a/1 (b; c)"),), b""),
    ("GET", "/image", (("Accept", "image/webp"),), b""),
    ("GET", "/image", (("Accept", "text/plain"),), b""),
    ("GET", "/headers", (("X-Odd", "\u00e9"), ("x-a", "")), b""),
    *(("GET", f"/status/{code}", (), b"") for code in (204, 205, 304, 401, 406, 429)),
    ("GET", "/status/500", (), b""),  # in the end: more of them, and neighbors give it no work
)
"""Ways to ask, besides one for each rule and each of its methods."""

CHANGED = (
    (
        (
            "POST",
            "/post",
            (*FORM, ("Transfer-Encoding", "chunked")),
            b"3\r\na=b\r\n0\r\nX: y\r\n\r\n",
        ),
        ("POST", "/post", FORM, b"a=b"),
    ),
    (
        ("POST", "/post", (*FORM, ("Expect", "100-continue")), b"a=b"),
        ("POST", "/post", FORM, b"a=b"),
    ),
    (
        ("GET", "/headers", (("X-Odd", "a"), ("Connection", "X-Odd")), b""),
        ("GET", "/headers", (), b""),
    ),
)
"""What is asked, and what the door makes of it: a body has its length, the door itself says that it
wants it, and what belongs to a hop ends there."""

OWN = {b"spillover-request-id", b"spillover-path", b"server-timing"}
"""Headers that doors add to answers."""

OF_THE_WAY = {b"connection", b"transfer-encoding", b"date"}
"""Those of a hop, and the time of day."""

DRAWN = ("/cache", "/digest-auth")
"""Of these only the lengths of the headers' values are compared: there are dates, and nonces. The
body of /uuid is another one each time."""

TELLING = (
    *("/get", "/headers", "/anything", "/post", "/put", "/patch", "/delete", "/delay", "/cache"),
    *("/gzip", "/deflate", "/brotli", "/stream/", "/etag"),
)
"""Of these bodies tell what headers the request had: what hops must add is there."""

DECODED = {
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
    "br": brotlicffi.decompress,
}

ADDED = {
    *("Forwarded", "X-Forwarded-Host", "Spillover-Request-Id", "Spillover-Deadline-Ms"),
}
"""Headers that httpbin shows of those that doors add: the others it hides, as those of its own
surroundings."""


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: tuple
    body: bytes

    @property
    def raw(self):
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: bin.example"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.body and "Transfer-Encoding" not in dict(self.headers):
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


def all_asked():
    """A request for each rule of the application and each of its methods, and more; and what is to
    be asked directly."""
    for rule in httpbin.app.url_map.iter_rules():
        path = PATHS.get(rule.rule)
        if path is None:
            path = re.sub(r"<(?:\w+:)?(\w+)>", lambda place: PLACES[place[1]], rule.rule)
        for method in sorted(rule.methods):
            with_body = method in WITH_BODY
            headers = (("Content-Type", "application/json"),) if with_body else ()
            body = b'{"a": [1, "\\u00e9"]}' if with_body else b""
            yield (Asked(method, path, headers, body),) * 2
    yield from ((Asked(*asked), Asked(*same)) for asked, same in CHANGED)
    yield from ((Asked(*more),) * 2 for more in MORE)


class Silent(WSGIRequestHandler):
    """What comes of each request is looked at anyway."""

    def log(self, *_):
        pass


@contextmanager
def running_httpbin():
    """Its port."""
    server = make_server("127.0.0.1", 0, httpbin.app, threaded=True, request_handler=Silent)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def kept(read, asked):
    """The headers that must be the same, in order."""
    left_out = OWN | OF_THE_WAY
    if asked.path.startswith(TELLING):
        left_out |= {b"content-length"}
    fields = [field for field in read.fields if field[0].lower() not in left_out]
    if asked.path.startswith(DRAWN):
        return [(name, len(value)) for name, value in fields]
    return fields


def told(read):
    """The documents of a body, without what is told of headers; and these, document by document."""
    decode = DECODED.get(read.get(b"content-encoding"), bytes)
    lines = decode(read.body).splitlines()
    joined = lines if len(lines) > 1 and lines[1].startswith(b"{") else [b"".join(lines)]
    documents = [json.loads(line) for line in joined]
    headers = [document.pop("headers") for document in documents]
    return documents, headers


def compare(asked, direct, read, hops=None):
    assert read.start == direct.start, asked
    assert kept(read, asked) == kept(direct, asked), asked
    assert read.is_whole, asked
    assert hops is None or read.get(b"spillover-path") == "a,b,c"[4 - 2 * hops :], asked
    if asked.path == "/uuid":
        assert len(read.body) == len(direct.body), asked
    if asked.path == "/uuid" or read.body == direct.body:
        return
    assert asked.path.startswith(TELLING), asked
    (documents, after), (expected, before) = told(read), told(direct)
    assert documents == expected, asked
    for one, other in zip(after, before, strict=True):
        assert {name: value for name, value in one.items() if name not in ADDED} == other, asked
        assert one.keys() - other.keys() == ADDED, asked


async def ask(port, asked):
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    try:
        read = await client.ask(asked.raw, asked.method)
        while read.status == 100:
            read = await client.answer(asked.method)
        return read
    finally:
        client.close()


@asynccontextmanager
async def three_doors(port):
    """Of a, which hands on to b, of b, which hands on to c, and of c."""
    handler = f"proxy:http://127.0.0.1:{port}"
    async with doors("a", "b", "c", occupied=("b",), handler=handler) as here:
        here["a"].shell.feed(ServersDown())
        yield here


@pytest.mark.slow
def test_its_whole_api_is_the_same_through_any_number_of_hops():
    """What fails counts as load: whoever hears of it in time keeps what comes next. So it is asked
    where nothing has failed yet."""

    async def main():
        failing = []
        with running_httpbin() as port:
            async with three_doors(port) as here:
                for asked, same in all_asked():
                    direct = await ask(port, same)
                    if direct.status >= 500:
                        failing.append((asked, direct))
                        continue
                    for hops, cluster in enumerate("cba"):
                        compare(asked, direct, await ask(here.ports[cluster], asked), hops)
            for asked, direct in failing:
                for hops, cluster in enumerate("cba"):
                    async with three_doors(port) as here:
                        compare(asked, direct, await ask(here.ports[cluster], asked), hops)
        assert failing

    federation.run(main, limit_s=WHOLE_S)


@asynccontextmanager
async def chain(kind, place, port):
    """A relay of this kind before two doors, or behind them: the port to ask, and that of another
    one in front of httpbin alone, as the relay changes answers, too."""
    service = f"127.0.0.1:{port}"
    relay = partial(relays.relay, kind)
    behind = {"between": lambda _: relay(service)}
    way = behind if place == "behind" else {"handler": f"proxy:http://{service}"}
    async with relay(service) as direct, doors("a", "b", **way) as here:
        here["a"].shell.feed(ServersDown())
        if place == "behind":
            yield here.ports["a"], direct
            return
        async with relay(f"127.0.0.1:{here.ports['a']}") as before:
            yield before, direct


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["haproxy", "nginx"] if EACH_WAY else ["haproxy"])
@pytest.mark.parametrize("place", ["before", "behind"] if EACH_WAY else ["before"])
def test_its_whole_api_is_the_same_in_chains(kind, place, require):
    require(relays.find(kind), f"{kind} is not installed")

    async def main():
        with running_httpbin() as port:
            async with chain(kind, place, port) as (through, around):
                for asked, same in islice(all_asked(), None if EACH_WAY else 20):
                    # nginx passes on what `Connection` names; behind it a door cannot know.
                    is_kept = kind == "nginx" and place == "before"
                    direct = await ask(around, asked if is_kept else same)
                    compare(asked, direct, await ask(through, asked))

    federation.run(main)
