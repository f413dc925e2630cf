"""Pages in browsers at a service's door: they can read errors of the node where the service lets
them read its answers, and a full queue does not break what browsers ask before (CORS)."""

import pytest

from spillover.core.overflow.events import ServersDown
from support.federation import until
from support.passed_requests import get, post
from support.proxy_doors import in_front, told

APP, OTHER = b"https://app.example", b"https://other.example"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n%b\r\nok"
ALLOWED = b"Access-Control-Allow-Origin: %b\r\n"
ASKS = b"Access-Control-Request-Method: PUT", b"Access-Control-Request-Headers: x-a, x-b"


def of_page(*lines, origin=APP, **more):
    return get(b"Origin: %b" % origin, *lines, **more)


def preflight(origin=APP):
    return of_page(*ASKS, origin=origin, method=b"OPTIONS")


def cors(read):
    """What a browser looks at."""
    names = ("allow-origin", "allow-credentials", "expose-headers")
    return [read.get(f"access-control-{name}".encode()) for name in names] + [read.get(b"vary")]


SHOWN = "proxy-status, retry-after, spillover-request-id, x-should-retry"


@pytest.mark.parametrize("hops", [0, 1])
async def test_errors_of_ours_can_be_read_where_the_service_lets_its_answers_be_read(hops):
    """By the very origin that it named, with cookies if it said so, or by all."""
    async with in_front(hops) as here:

        async def answer(talk, head, _):
            lines = b""
            for origin in (APP, OTHER):
                if origin in head:
                    lines = ALLOWED % origin
            if APP in head:
                lines += b"Access-Control-Allow-Credentials: true\r\nVary: Accept, Origin\r\n"
            await talk.say(OK % lines)
            return True

        async def refused(*lines, origin):
            raw = of_page(b"Spillover-Deadline-Ms: 1", *lines, origin=origin)
            too_late = await here.ask(raw)
            assert (too_late.status, told(too_late)["status"]) == (504, 504)
            head = post(b"Content-Length: 99999999", b"Origin: %b" % origin, body=b"")
            too_large = await here.ask(head)
            assert (too_large.status, told(too_large)["status"]) == (413, 413)
            assert cors(too_late) == cors(too_large)
            return cors(too_late)

        here.service.answer = hang
        nothing = ["", "", "", ""]
        assert await refused(origin=APP) == nothing
        here.service.answer = answer
        for origin in (APP, OTHER, b"null"):
            assert (await here.ask(of_page(origin=origin))).body == b"ok"
        here.service.answer = hang
        assert await refused(origin=APP) == [APP.decode(), "true", SHOWN, "origin"]
        assert await refused(origin=OTHER) == [OTHER.decode(), "", SHOWN, "origin"]
        assert await refused(origin=b"null") == nothing
        here.service.answer = OK % (ALLOWED % b"*")
        assert (await here.ask(of_page(origin=OTHER))).body == b"ok"
        here.service.answer = hang
        assert await refused(origin=b"https://third.example") == ["*", "", SHOWN, ""]
        read = await here.ask(get(b"Spillover-Deadline-Ms: 1"))
        assert (read.status, cors(read)) == (504, nothing)


async def hang(talk, *_):
    await talk.until_closed()


async def test_a_preflight_is_answered_while_nothing_else_is():
    """Beside a full queue by the service; as it was last, or as operators say, where that is not
    there. It takes no server, and is no request of the ledger."""
    granted = ALLOWED % APP + b"Access-Control-Allow-Methods: PUT\r\nAccess-Control-Max-Age: 9\r\n"
    async with in_front(cluster={"servers": 1, "queue_limit": 1}) as here:

        async def answer(talk, head, _):
            if head.startswith(b"OPTIONS"):
                await talk.say(b"HTTP/1.1 204 No Content\r\n%b\r\n" % granted)
                return True
            return await hang(talk)

        here.service.answer = answer
        clients = [await here.client() for _ in range(2)]
        for client in clients:
            client.writer.write(of_page())
        home = here["a"].ledger.home
        await until(lambda: home["running"] + home["queued"] == 2)
        full = await here.ask(of_page())
        assert (full.status, cors(full)[0]) == (429, "")
        read = await here.ask(preflight())
        assert (read.status, read.get(b"spillover-path")) == (204, "a")
        assert cors(read)[0] == APP.decode()
        assert home["accepted"] == 2
        full = await here.ask(of_page())
        assert (full.status, cors(full)[0]) == (429, APP.decode())
        here.service.answer = hang
        here.service.hang_up()
        here["a"].shell.feed(ServersDown())
        for upstream in here["a"].shell.requests.workers.upstreams._all:
            upstream.up = False
        again = await here.ask(preflight())
        assert (again.status, again.get(b"access-control-max-age")) == (204, "9")
        assert again.get(b"spillover-path") == ""
        assert (await here.ask(preflight(OTHER))).status == 503
        for client in clients:
            client.close()


async def test_operators_may_name_origins_before_the_service_has_answered():
    async with in_front() as here:
        here.service.answer = hang
        door = here.doors["a"]
        door._origins._allowed = frozenset({APP})
        late = b"Spillover-Deadline-Ms: 1"
        read = await here.ask(of_page(late))
        assert (read.status, cors(read)) == (504, [APP.decode(), "true", SHOWN, "origin"])
        read = await here.ask(of_page(late, *ASKS, method=b"OPTIONS"))
        asked = [read.get(b"access-control-allow-" + one) for one in (b"methods", b"headers")]
        assert (read.status, asked) == (204, ["PUT", "x-a, x-b"])
        assert cors(read) == [APP.decode(), "", "", "origin"]
        assert cors(await here.ask(of_page(late, origin=OTHER))) == [""] * 4
