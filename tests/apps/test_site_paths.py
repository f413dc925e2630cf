"""Which node of a site answers a request, where others may know its name and some cannot be asked:
a name never has two owners since a question was not answered (decision 0049)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from spillover.apps.http.problems import Problem
from spillover.apps.node.site_paths import ASKED_AS, ELSEWHERE, SitePaths
from spillover.core.overflow.siblings import Siblings
from spillover.live.http1.outgoing import Response
from spillover.live.overflow.site import PASSED_ON_MAX
from spillover.model.errors import NotDelivered, OutcomeUnknown

NOT_KNOWN = Response(404, {ELSEWHERE: b"1"}, b"", 0.0, 0.0)
KNOWN = Response(200, {}, b"done", 0.0, 0.0)
BROKEN = OutcomeUnknown("the connection broke")
FULL = NotDelivered("no connection is free")


class ScriptedSite:
    """Node 1 of two, to which all names belong; node 2 gives these answers in turn, the last one
    for ever. It is gone from the site after as many as `leaves_after`."""

    looked_up_max = 3
    may_have_moved = True

    def __init__(self, *told, leaves_after=None):
        self.told, self.asked, self._leaves_after = told, [], leaves_after
        self.siblings = Siblings(1, 1, 4, 0.0)
        self.siblings.woke(0.0)
        self.number, self.passed_on, self.looked_up = 1, 0, 0

    @property
    def others(self):
        left = self._leaves_after is not None and len(self.asked) >= self._leaves_after
        return [] if left else [2]

    def owner(self, _):
        return 1

    def pass_on(self, number, *_, headers, **_more):
        told = self.told[min(len(self.asked), len(self.told) - 1)]
        self.asked.append((number, dict(headers)[ASKED_AS]))
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
        super().__init__(method=method, path=path, is_gone=False, answered=[], **told)

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


def taken(site, within_s=20.0):
    """Returns what the client was answered; None where the node takes the request itself."""

    async def main():
        exchange = ClientsExchange()
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


def test_whoever_looks_for_a_request_is_told_that_a_node_cannot_be_asked():
    with pytest.raises(Problem) as told:
        looked_up(ScriptedSite(FULL))
    assert (told.value.reason, told.value.retry_after_s) == ("queue_full", 1.0)


def test_questions_for_requests_do_not_take_the_room_of_requests():
    site = ScriptedSite(KNOWN)
    site.looked_up = site.looked_up_max
    with pytest.raises(Problem) as told:
        looked_up(site)
    assert told.value.reason == "queue_full"
    assert taken(site) == (200, b"done")
    site.passed_on, site.looked_up = PASSED_ON_MAX, 0
    with pytest.raises(Problem) as told:
        taken(site)
    assert told.value.reason == "queue_full"
    assert looked_up(site) == (200, b"done")
