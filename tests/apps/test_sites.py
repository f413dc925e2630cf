"""Pages of other sites, in the browsers of people who can reach a node: what they are refused, and
what those get that are allowed. What real browsers send is written down here by hand.
"""

import asyncio
import contextlib
import json

import pytest

from spillover.apps.http.server import HttpServer
from spillover.apps.http.sites import FOREIGN_NAME, HOW_TO_ALLOW, OTHER_SITE, WebSite, origin_of
from spillover.apps.node.app import create_app
from spillover.apps.node.exposure import PublicOnly
from spillover.cli.parsing import origin as origin_option
from spillover.live.http1.client import HttpClient
from spillover.live.process.listening import bind_socket

LOCAL = "127.0.0.1:8101"
APP = "http://app.example:3000"
NAVIGATION = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}

OWN = (
    {"host": LOCAL},
    {"host": "evil.example"},  # a program's, that may call the node what it likes
    {"host": LOCAL, "origin": f"http://{LOCAL}", "sec-fetch-site": "same-origin"},
    {"host": LOCAL, "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"},
    {"host": LOCAL, "sec-fetch-site": "none", **NAVIGATION},
    {"host": "localhost:8101", "origin": "http://localhost:8101"},
    {"host": "node.localhost", "origin": "http://node.localhost"},
    {"host": "[::1]:8101", "origin": "http://[::1]:8101"},
    {"host": "10.0.0.7", "origin": "http://10.0.0.7"},
    {"host": "own.example:80", "origin": "http://own.example"},
    {"host": "own.example", "origin": "http://own.example:80"},
)
OTHERS = (
    {"host": LOCAL, "origin": "http://evil.example"},
    {"host": LOCAL, "origin": "null"},
    {"host": LOCAL, "origin": ""},
    {"host": LOCAL, "origin": "http://["},
    {"host": LOCAL, "origin": "http://x:y"},
    {"host": LOCAL, "origin": LOCAL},
    {"host": LOCAL, "origin": f"https://{LOCAL}"[:-5]},
    {"host": LOCAL, "origin": "http://127.0.0.1:3000", "sec-fetch-site": "same-site"},
    {"host": LOCAL, "sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    {"host": LOCAL, "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    {"host": LOCAL, "sec-fetch-site": "cross-site"},
    {"host": LOCAL, "sec-fetch-site": "odd"},
    {"host": LOCAL, "origin": f"http://{LOCAL}", "sec-fetch-site": "cross-site"},
    {"host": "[", "origin": f"http://{LOCAL}"},
)
THROUGH_TLS = (
    {"host": "node.example", "origin": "https://node.example", "sec-fetch-site": "same-origin"},
    {"host": "node.example:443", "origin": "https://node.example"},
    {"host": "node.example", "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"},
)

SITE = WebSite(own_names=frozenset({"own.example"}))


@pytest.mark.parametrize("headers", OWN)
def test_programs_and_own_pages_are_let_in(headers):
    assert SITE.why_not_operate(headers) is None
    assert SITE.why_not_use("POST", headers) is None


@pytest.mark.parametrize("headers", OTHERS)
def test_pages_of_others_are_not(headers):
    """Nor another port of the same machine: whatever runs there is another page."""
    assert SITE.why_not_operate(headers) == OTHER_SITE
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        assert SITE.why_not_use(method, headers) == OTHER_SITE + HOW_TO_ALLOW


@pytest.mark.parametrize("headers", THROUGH_TLS)
def test_pages_behind_a_proxy_with_a_certificate_use_the_node_and_do_not_operate_it(headers):
    assert SITE.why_not_use("POST", headers) is None
    assert SITE.why_not_operate(headers) == FOREIGN_NAME


def test_links_from_anywhere_may_be_followed_to_read():
    """From a wiki, or a chat; not into a frame of another page, and not to change anything."""
    link = {"host": LOCAL, "sec-fetch-site": "cross-site", **NAVIGATION}
    assert SITE.why_not_use("GET", link) is None
    assert SITE.why_not_use("HEAD", link) is None
    assert SITE.why_not_use("POST", link) is not None
    assert SITE.why_not_use("GET", {**link, "sec-fetch-dest": "iframe"}) is not None
    assert SITE.why_not_operate(link) == OTHER_SITE


def test_allowed_origins_use_the_node_and_do_not_operate_it():
    foreign = {"host": LOCAL, "origin": APP, "sec-fetch-site": "cross-site"}
    for allowed in (APP, "*"):
        site = WebSite(allowed=frozenset({allowed}))
        assert site.why_not_use("POST", foreign) is None
        assert site.why_not_operate(foreign) == OTHER_SITE
    site = WebSite(allowed=frozenset({APP}))
    for other in ("https://app.example:3000", "http://app.example", f"{APP}0", "null", ""):
        assert site.why_not_use("POST", {**foreign, "origin": other}) is not None


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("http://APP.example:80/", "http://app.example"),
        ("HTTPS://app.example:443", "https://app.example"),
        ("https://app.example:8443", "https://app.example:8443"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("*", "*"),
    ],
)
def test_origins_are_read_as_browsers_write_them(given, read):
    assert origin_of(given) == read
    assert origin_option(given) == read


@pytest.mark.parametrize(
    "given",
    [
        *("", "null", "app.example", "http://", "ftp://x", "http://x/path", "http://u@x", "**"),
        *("http://x:y", "http://x?y", "http://x y", "http://[", "http://ä.example"),
        "http://x:99999",
    ],
)
def test_what_is_no_origin_is_refused_in_one_line(given):
    with pytest.raises(Exception, match=r"^expected http\(s\)://HOST\[:PORT\] or \*, got "):
        origin_option(given)


# --- a running node -----------------------------------------------------------------------------

WORK = b'{"payload": 1}'
CALLS = [
    ("POST", "/requests", WORK),
    ("GET", "/requests/k", b""),
    ("DELETE", "/requests/k", b""),
    ("OPTIONS", "/requests", b""),
    ("POST", "/peer/v2/forward", b"{}"),
    ("POST", "/peer/v2/cancel", b"{}"),
    ("GET", "/peer/v2/reports?from=b", b""),
    ("POST", "/peer/v2/federation", b"{}"),
    ("POST", "/admin/drain", b""),
    ("PUT", "/admin/policy", b'{"policy": "isolated"}'),
]


def as_bytes(headers):
    return [(name.encode(), value.encode()) for name, value in headers.items()]


@contextlib.asynccontextmanager
async def another_door(node, **options):
    """A client of the same node at a socket of its own."""
    with bind_socket("127.0.0.1", 0) as listening:
        server = HttpServer(PublicOnly(create_app(node.shell, **options)))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await server.ready.wait()
        client = HttpClient(f"http://127.0.0.1:{listening.getsockname()[1]}")
        yield client
        await client.close()
        server.stop()
        await serving


FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
]


async def test_pages_of_others_make_a_node_do_nothing(nodes):
    """On every path that does anything, and with nothing that lets them read the refusal."""
    async with nodes.alone("a", "b") as node:
        for foreign in map(as_bytes, FOREIGN):
            for method, path, body in CALLS:
                status, headers, problem = await node.send(method, path, body, foreign)
                assert (status, problem["reason"]) == (403, "another_site"), (method, path)
                assert not any(name.startswith(b"access-control") for name in headers)
        assert node.ledger.home["accepted"] == 0
        assert (await node.get("/state"))[1]["draining"] is False
        own = as_bytes({"Origin": node.url, "Sec-Fetch-Site": "same-origin"})
        assert (await node.send("POST", "/requests", WORK, own))[0] == 200


async def test_a_page_of_a_name_that_was_made_to_point_here_makes_a_node_do_nothing(nodes):
    """DNS rebinding: to the browser it is the page's own node."""
    async with nodes.alone() as node:
        for method, path, body in CALLS:
            head = f"{method} {path} HTTP/1.1\r\nHost: evil\r\nOrigin: http://evil\r\n"
            head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
            answer = await node.talk(head.encode() + body)
            assert answer.startswith(b"HTTP/1.1 403"), (method, path)
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["reason"] == "another_site"
        assert node.ledger.home["accepted"] == 0
        assert not node.machine.draining


@pytest.mark.parametrize("allowed", [APP, "*"])
async def test_pages_of_allowed_origins_are_served_and_may_read(nodes, allowed):
    """As their browsers want it: asked before, and told in every answer, refusals too."""
    headers = as_bytes({"Origin": APP, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"})
    async with nodes.Federation(nodes.topology_of("a")) as federation:
        options = {"allowed_origins": frozenset({allowed})}
        async with another_door(federation["a"], **options) as client:

            async def send(method, path, body=b"", more=()):
                all_headers = [*headers, *more]
                return await client.request(
                    method, path, body=body, headers=all_headers, timeout_s=5
                )

            asked = [(b"Access-Control-Request-Method", b"POST")]
            asked += [(b"Access-Control-Request-Headers", b"content-type,idempotency-key")]
            preflight = await send("OPTIONS", "/requests", more=asked)
            assert preflight.status == 200
            assert b"POST" in preflight.headers[b"access-control-allow-methods"]
            assert b"idempotency-key" in preflight.headers[b"access-control-allow-headers"]
            assert int(preflight.headers[b"access-control-max-age"]) > 0
            key = [(b"Idempotency-Key", b"k")]
            for method, path, body, more, status in (
                ("POST", "/requests", WORK, key, 200),
                ("POST", "/requests", b"no JSON", (), 422),
                ("POST", "/requests", WORK, [(b"Prefer", b"respond-async")], 202),
                ("GET", "/requests/k", b"", (), 200),
                ("DELETE", "/requests/k", b"", (), 200),
                ("GET", "/requests/nothing", b"", (), 404),
            ):
                answer = await send(method, path, body, more)
                assert answer.status == status, (method, path)
                told = answer.headers
                assert told[b"access-control-allow-origin"] == allowed.encode()
                assert b"spillover-request-id" in told[b"access-control-expose-headers"]
                assert (told.get(b"vary") == b"origin") == (allowed == APP)
                assert b"access-control-allow-credentials" not in told
            for path in ("/admin/drain", "/console/drain"):
                answer = await send("POST", path)
                assert answer.status == 403
                assert b"access-control-allow-origin" not in answer.headers
            peers = await federation["a"].send("POST", "/peer/v2/forward", b"{}", headers)
            assert (peers[0], peers[2]["reason"]) == (403, "another_site")
            plain = await client.request("POST", "/requests", body=WORK, timeout_s=5)
            assert b"access-control-allow-origin" not in plain.headers


async def test_a_page_may_take_its_time_to_send_a_body(nodes):
    """What comes in pieces is looked at just so, and the connection can be used again."""
    async with nodes.alone() as node:
        reader, writer = await node.connect()
        head = b"POST /requests HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(WORK)
        writer.write(head + b"Origin: http://evil.example\r\n\r\n")
        refused = await reader.readuntil(b"}")
        assert refused.startswith(b"HTTP/1.1 403")
        writer.write(WORK + head + b"Connection: close\r\n\r\n" + WORK)
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
