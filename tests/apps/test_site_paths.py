"""Which node of a site answers a request, where others may know its name and some cannot be asked:
a name never has two owners since a question was not answered (decision 0049)."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from spillover.apps.http.problems import Problem
from spillover.apps.http.server import HttpServer
from spillover.apps.node.app import create_app
from spillover.apps.node.exposure import PublicOnly
from spillover.apps.node.intake import LARGE_BYTES, asked_name, read_headers
from spillover.apps.node.lookups import LOOKED_AT
from spillover.apps.node.site_paths import ASKED_AS, ELSEWHERE, SitePaths
from spillover.apps.node.site_paths import KNOWN as KNOWN_ONLY
from spillover.core.overflow.siblings import Siblings
from spillover.live.http1.outgoing import Response
from spillover.live.process.listening import bind_socket
from spillover.model.errors import NotDelivered, OutcomeUnknown

NOT_KNOWN = Response(404, {ELSEWHERE: b"1"}, b"", 0.0, 0.0)
KNOWN = Response(200, {}, b"done", 0.0, 0.0)
BROKEN = OutcomeUnknown("the connection broke")
FULL = NotDelivered("no connection is free")
OVER = NotDelivered("a node that drains has closed its door")


class ScriptedSite:
    """Node 1 of two, to which all names belong unless `owner` says otherwise; node 2 gives these
    answers in turn, the last one for ever. It is gone from the site after as many as
    `leaves_after`."""

    looked_up_max, passed_on_max = 3, 6
    may_have_moved, asks_others = True, False

    def __init__(self, *told, leaves_after=None, owner=1):
        self.told, self.asked, self._leaves_after = told, [], leaves_after
        self._owner = owner
        self.siblings = Siblings(1, 1, 4, 0.0)
        self.siblings.woke(0.0)
        self.number, self.passed_on, self.looked_up = 1, 0, 0

    def share_sessions(self, _):
        pass

    @property
    def gives_up(self):
        return self.siblings.gives_up

    @property
    def others(self):
        left = self._leaves_after is not None and len(self.asked) >= self._leaves_after
        return [] if left else [2]

    async def ask_all(self, method, path, *_, among):
        """All others are asked for the session of a client that leaves, and one had it."""
        assert method == "DELETE"
        assert self.looked_up >= 1
        self.looked_for.append(path)
        return [(number, 200, b'{"found":true}') for number in among]

    def owner(self, _):
        return self._owner

    def is_over(self, _, error):
        return error is OVER

    def pass_on(self, number, method, path, *, headers, **_):
        told = self.told[min(len(self.asked), len(self.told) - 1)]
        self.asked.append((number, dict(headers)[ASKED_AS]))
        self.method, self.path, self.headers = method, path, dict(headers)
        future = asyncio.get_running_loop().create_future()
        if isinstance(told, Response):
            future.set_result(told)
        else:
            future.set_exception(told)
        return future


class ClientsExchange(SimpleNamespace):
    """A request that came from a client, and what it was answered."""

    def __init__(self, method="POST", path="/requests"):
        told = {"asked_as": b"", "headers": [], "query": b"", "response_complete": False}
        told |= {"is_gone": False, "disconnected": False, "refuse": lambda _: None}
        super().__init__(method=method, path=path, answered=[], **told)

    def watch(self, *_):
        pass

    unwatch = watch

    def answer_raw(self, status, _, body):
        self.answered.append((status, body))


def paths_of(site):
    home = SimpleNamespace(find=lambda _: None)
    requests = SimpleNamespace(home=home, visit_of=lambda _: None)
    moving = SimpleNamespace(add=lambda _: None)
    room = SimpleNamespace(moving=moving)
    return SitePaths(
        SimpleNamespace(requests=requests, room=room, cluster=SimpleNamespace(id="a")), site
    )


def taken(site, within_s=20.0, headers=(), asked_as=b""):
    """Returns what the client was answered; None where the node takes the request itself."""

    async def main():
        exchange = ClientsExchange()
        exchange.asked_as = asked_as
        exchange.headers += headers
        is_told = await paths_of(site).answer(exchange, "name", "", b"", within_s)
        return exchange.answered[0] if is_told else None

    return asyncio.run(main())


def looked_up(site):
    """Returns what was told of a request; None where no other node knows it."""

    async def main():
        exchange = ClientsExchange("GET", "/requests/name")
        is_told = await paths_of(site).look_up(exchange, "")
        return exchange.answered[0] if is_told else None

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/requests", True),
        ("/requests/name", True),
        ("/healthz", True),
        ("/peer/v3/reports", False),
    ],
)
def test_clients_are_told_whose_node_this_is(path, told):
    exchange = ClientsExchange(path=path)
    exchange.header_lines = b"vary: origin\r\n"
    paths_of(ScriptedSite(KNOWN)).tell_cluster(exchange)
    lines = exchange.header_lines.lower().split(b"\r\n")
    assert lines == [b"vary: origin", *([b"spillover-cluster: a"] if told else []), b""]


@pytest.mark.parametrize("call", [taken, looked_up])
def test_a_name_is_known_elsewhere_or_not(call):
    assert call(ScriptedSite(KNOWN)) == (200, b"done")
    assert call(ScriptedSite(NOT_KNOWN)) is None


def test_a_sibling_is_not_told_that_a_page_asks():
    """This node has let the page in; a sibling lets no page ask what only nodes ask each other."""
    site = ScriptedSite(KNOWN)
    page = [(b"origin", b"http://app"), (b"sec-fetch-site", b"cross-site")]
    page += [(b"sec-fetch-mode", b"cors"), (b"sec-fetch-dest", b"empty")]
    assert taken(site, headers=[*page, (b"prefer", b"wait=1")]) == (200, b"done")
    assert site.headers == {b"prefer": b"wait=1", ASKED_AS: KNOWN_ONLY}


@pytest.mark.parametrize("failed", [BROKEN, FULL])
@pytest.mark.parametrize("call", [taken, looked_up])
def test_a_node_that_gives_no_answer_is_asked_again(call, failed):
    """It may have the name: it must not be taken here as well."""
    assert call(ScriptedSite(failed, KNOWN)) == (200, b"done")
    assert call(ScriptedSite(failed, NOT_KNOWN)) is None


@pytest.mark.parametrize("call", [taken, looked_up])
def test_a_node_that_has_gone_knows_nothing(call):
    site = ScriptedSite(FULL, leaves_after=2)
    assert call(site) is None
    assert len(site.asked) == 2


@pytest.mark.parametrize("call", [taken, looked_up])
def test_a_node_that_drains_and_has_closed_its_door_is_not_waited_for(call):
    """It waits for this one perhaps, until the drain's limit ends both waits."""
    site = ScriptedSite(OVER)
    assert call(site) is None
    assert len(site.asked) == 1


def test_a_name_is_refused_where_all_nodes_end_and_none_can_be_asked():
    """They would wait for each other until the time to drain ends. It may have run where an answer
    was lost, and where the node to which the name belongs has closed its door."""
    for told, owner, reason in (
        (FULL, 1, "draining"),
        (BROKEN, 1, "outcome_unknown"),
        (OVER, 2, "outcome_unknown"),
    ):
        site = ScriptedSite(told, owner=owner)
        site.siblings.is_closed = True
        with pytest.raises(Problem) as refused:
            taken(site)
        assert refused.value.reason == reason
        assert len(site.asked) == 1


def test_a_node_takes_no_names_once_it_closes_its_door():
    """Another node that is refused by its port takes it for one that has nothing under way."""
    for site in (ScriptedSite(NOT_KNOWN), ScriptedSite(leaves_after=0)):
        site.siblings.is_closed = True
        with pytest.raises(Problem) as refused:
            taken(site)
        assert refused.value.reason == "draining"


def test_a_node_that_cannot_be_asked_costs_the_request_its_deadline():
    with pytest.raises(Problem) as told:
        taken(ScriptedSite(FULL), within_s=0.1)
    assert told.value.reason == "deadline_exceeded"


def test_an_answer_that_cannot_be_passed_on_is_not_asked_for_until_the_deadline():
    site = ScriptedSite(BROKEN)
    with pytest.raises(Problem) as told:
        taken(site)
    assert told.value.reason == "outcome_unknown"
    assert len(site.asked) == 2


def test_questions_for_requests_do_not_take_the_room_of_requests():
    site = ScriptedSite(KNOWN)
    site.looked_up = site.looked_up_max
    with pytest.raises(Problem) as told:
        looked_up(site)
    assert told.value.reason == "queue_full"
    assert taken(site) == (200, b"done")
    site.passed_on, site.looked_up = site.passed_on_max, 0
    with pytest.raises(Problem) as told:
        taken(site)
    assert told.value.reason == "queue_full"
    assert looked_up(site) == (200, b"done")
    with pytest.raises(Problem) as told:
        taken(site, asked_as=KNOWN_ONLY)
    assert told.value.reason == "unknown_request", "a sibling's question waits for nobody"


@pytest.mark.parametrize(
    ("key", "body", "name"),
    [
        (None, b'{"payload": 1}', None),
        (None, b'{"payload": 1, "id": "a"}', "a"),
        (None, rb'{"\u0069\u0064": "a", "payload": 1}', "a"),
        (None, rb'{"i\u0064": "a", "payload": "%s"}' % (b"x" * LARGE_BYTES), "a"),
        (b"k", b'{"payload": 1, "id": "a"}', "k"),  # it is refused, by the node of one of the two
        (None, b'{"payload": {"id": "a"}}', None),
        (None, b'{"payload": 1, "id": ".."}', None),
        (None, b'{"payload": 1, "id": 7}', None),
        (None, b'{"id', None),
        (None, b'"id"', None),
    ],
)
def test_the_name_of_a_request_is_known_before_it_is_read(key, body, name):
    headers = read_headers([] if key is None else [(b"idempotency-key", key)])
    assert asked_name(headers, body) == name


# --- at a running node -----------------------------------------------------------------------


@contextlib.asynccontextmanager
async def node_with(nodes, site):
    """A node whose site is this one, and its port."""
    async with nodes.Federation(nodes.topology_of("a")) as federation:
        node = federation["a"]
        node.shell.site = site
        try:
            with bind_socket("127.0.0.1", 0) as listening:
                server = HttpServer(PublicOnly(create_app(node.shell)))
                serving = asyncio.create_task(server.serve(sockets=[listening]))
                await server.ready.wait()
                yield node, listening.getsockname()[1]
                server.stop()
                await serving
        finally:
            node.shell.site = None


async def answer_to(port, head, body=b""):
    """Returns what comes back for a request of this head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"%b\r\nHost: a\r\nConnection: close\r\n" % head)
    writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_name_in_the_body_is_asked_of_siblings_as_one_in_the_header(nodes):
    site = ScriptedSite(KNOWN)
    async with node_with(nodes, site) as (node, port):
        for number, more in enumerate((b"", b"\r\nExpect: 100-continue")):
            body = b'{"payload": 1, "id": "name"}'
            told = await answer_to(port, b"POST /requests HTTP/1.1" + more, body)
            assert told.endswith(b"\r\n\r\ndone")
            assert len(site.asked) == number + 1
        assert node.ledger.home["accepted"] == 0


async def test_head_of_a_request_asks_siblings_by_get_and_does_not_wait(nodes):
    site = ScriptedSite(KNOWN)
    async with node_with(nodes, site) as (_, port):
        head = b"HEAD /requests/name?wait_ms=5000 HTTP/1.1\r\nPrefer: wait=5"
        told = await answer_to(port, head)
        assert told.startswith(b"HTTP/1.1 200 OK\r\n")
        assert told.endswith(b"\r\n\r\n")
        assert b"content-length: 4\r\n" in told.lower()
    assert (site.method, site.path) == ("GET", "/requests/name")
    assert site.headers[ASKED_AS] == LOOKED_AT
    assert b"prefer" not in site.headers


async def test_a_client_that_leaves_is_looked_for_elsewhere_as_long_as_few_questions_wait(nodes):
    """So many clients that leave at once do not take the connections of requests. The session of
    one that is not looked for ends with its connection."""
    site = ScriptedSite(KNOWN)
    async with node_with(nodes, site) as (_, port):
        for waiting, found in ((0, b"true"), (site.looked_up_max, b"false"), (2, b"true")):
            site.looked_up, site.looked_for = waiting, []
            told = await answer_to(port, b"DELETE /session?client=me HTTP/1.1")
            assert b'"found":%b' % found in told.replace(b" ", b"")
            assert site.looked_for == (["/session?client=me"] if found == b"true" else [])
            assert site.looked_up == waiting
