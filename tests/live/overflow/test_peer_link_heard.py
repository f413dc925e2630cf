"""What one link hears of its neighbor: reports line by line, refusals with what they tell, and what
the log says while there are none. The neighbor says what the test has it say."""

import asyncio
import logging
import time
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from spillover.core.overflow import events as ev
from spillover.live.engine.timers import Timers
from spillover.live.overflow import peer_link, wire
from spillover.live.overflow.agreement import Agreement, Terms
from spillover.live.overflow.configured import Configured
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.live.overflow.peer_clients import PeerClients
from spillover.live.overflow.peer_link import PeerLink
from spillover.live.overflow.protocol import SPOKEN
from spillover.live.overflow.report_lines import (
    HEARTBEAT,
    encode_ask,
    encode_no_work,
    encode_report,
)
from spillover.model.configuration import Stamp
from spillover.model.errors import NotDelivered
from spillover.model.load import LoadNow, LoadReport
from spillover.model.request import Request
from spillover.model.topology import Cluster, Topology
from support.loop import until
from support.scripted_server import RESET, answer, scripted

TOPOLOGY = Topology(name="test", clusters=(Cluster(id="a", servers=1),))
LOAD = LoadNow(1, 2, 3, 0.5, True)
REPORT = LoadReport(1, 1, 1.0, 1.0, 0, 1, accepting=True, hears=("a",))


class End:
    """The end of a link where a is; `events` has what its machine would hear."""

    def __init__(self, url, delay_s=0.0, away_max=10, more_urls=()):
        self.timers = Timers(asyncio.get_running_loop())
        self.events, self.became, self.higher = [], [], []
        self.configured = Configured(Stamp(4, "b", 7))
        self.configured.on_higher = lambda *told: self.higher.append(told)
        self.agreement = Agreement(wire.Caller("a", "b", "test"), Terms(), self.configured)
        self.emulated_link = EmulatedLink(self.timers, Random(1), delay_s)
        self.link = PeerLink(
            neighbor=0,
            cluster="b",
            url=url,
            more_urls=more_urls,
            emulated_link=self.emulated_link,
            away_max=away_max,
            agreement=self.agreement,
            clients=PeerClients(TOPOLOGY, None),
            timers=self.timers,
            random=Random(1),
            feed=self.events.append,
            on_forward=self.became.append,
            on_refused=lambda _: None,
        )

    def forward(self, ref=1):
        request = Request(f"r{ref}", keyed=True, work=wire.NOTHING, path=("a",))
        self.link.forward(ev.Forward(ref, 0, request, time.monotonic() + 100.0))

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def linked(*answers, listens=True, **how):
    """A neighbor that gives these answers, and the end of a link to it."""
    async with scripted(*answers) as neighbor:
        end = End(neighbor.url, **how)
        end.neighbor = neighbor
        listening = asyncio.ensure_future(end.link.listen()) if listens else None
        try:
            yield end
        finally:
            if listening is not None:
                listening.cancel()
                with suppress(asyncio.CancelledError):
                    await listening
            await end.link.close()
            end.timers.close()


def stream(*lines, ends=True):
    """Reports, and the end of them."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(line), line) for line in lines)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n" * ends


@pytest.fixture
def said(caplog, monkeypatch):
    """The lines of links: level, words, and what they tell of the neighbor."""
    monkeypatch.setattr(peer_link._log, "filters", [])
    caplog.set_level(logging.DEBUG, peer_link.__name__)

    def lines():
        told = [
            (one.levelname, one.msg.words, one.msg.fields)
            for one in caplog.records
            if one.name == peer_link.__name__
        ]
        assert all(fields.pop("neighbor") == "b" for _, _, fields in told)
        caplog.clear()
        return told

    return lines


async def test_each_line_of_a_stream_is_heard_and_a_bad_one_costs_no_other(said):
    """One that repeats the last one is a sign of life, and is not read again."""
    lines = (
        encode_report(REPORT, "5 c 1"),
        encode_report(REPORT, "5 c 1"),
        b"nonsense\n",
        encode_ask(LOAD, "g"),
        b"{}}\n",
        encode_no_work(LOAD, "h"),
        HEARTBEAT,
    )

    async with linked(stream(*lines, ends=False)) as end:
        await until(lambda: len(end.events) >= 5)
        report, again, asked, none, sign = end.events[-5:]
        assert (type(report), report.neighbor) == (ev.ReportReceived, 0)
        assert report.report.configuration == "5 c 1"
        assert asked == ev.WorkAsked(0, LOAD, "g")
        assert none == ev.NoWorkThere(0, LOAD, "h")
        assert sign == again == ev.ReportReceived(0, None)
        assert end.higher == [("b", Stamp(5, "c", 1))]
    complaints = [told for told in said() if told[1] == "neighbor is not understood"]
    assert [level for level, *_ in complaints] == ["WARNING"]
    assert complaints[0][2]["message"] == "report"


async def test_the_end_of_a_stream_is_the_end_of_a_neighbor_until_there_is_another(said):
    """Each stream may complain anew, and that there is none is told each time."""
    bad = stream(encode_report(REPORT), b"nonsense\n")

    async with linked(bad, bad, stream(encode_report(REPORT), ends=False)) as end:
        await until(lambda: len(end.of(ev.ReportReceived)) == 3)
        assert [event.neighbor for event in end.of(ev.LinkDown)] == [0, 0]
    told = [(words, fields["reason"][:11]) for _, words, fields in said()]
    assert told == [
        *(("neighbor is not understood", "JSON is mal"), ("no reports", "the stream ")),
    ] * 2  # fmt: skip


async def test_who_turns_one_away_is_asked_nothing_until_it_is_gone(said):
    """A stranger has the neighbor's address; then nobody has it."""
    stranger = answer(403, spillover_cluster="x", spillover_configuration="9 x 1")

    async with linked(stranger, RESET) as end:
        await until(lambda: end.agreement.is_turned_away)
        assert end.agreement.disagreement == "at its address is cluster 'x'"
        assert end.higher == [("x", Stamp(9, "x", 1))]
        with pytest.raises(NotDelivered, match="cluster b is not at its address"):
            await end.link.ask_federation(b"", 5.0)
        await until(lambda: not end.agreement.is_turned_away)


@pytest.mark.parametrize(
    ("headers", "load", "status"),
    [
        ({}, None, None),
        ({"spillover_load": "[1,2,3,0.5,true]"}, LOAD, None),
        ({"spillover_upstream_status": "503"}, None, 503),
        ({"spillover_load": "nonsense", "spillover_upstream_status": "x"}, None, None),
    ],
)
async def test_a_refusal_tells_the_load_there_and_who_refused(headers, load, status):
    async with linked(answer(429, **headers), listens=False) as end:
        end.forward(3)
        await until(lambda: end.events)
        assert end.events == [ev.ForwardRefused(3, load, status)]
        assert end.became == ["refused"]


async def test_only_what_a_node_refuses_may_run_elsewhere_and_all_else_is_lost():
    """408 of a forward that was not read in time is a refusal; what a gateway says is none."""
    statuses = (400, 403, 404, 405, 408, 413, 422, 429, 503)
    bodies = (
        b'{"outcome":"done"}',
        b'{"outcome":"later","path":["b"],"held_ms":1}',
        b'{"outcome":"done","path":[],"held_ms":1}',
        b"\xff\xfe",
    )
    said = [(answer(status), ev.ForwardRefused) for status in statuses]
    said += [(answer(status), ev.ForwardLost) for status in (500, 502, 504)]
    said += [(RESET, ev.ForwardLost), *((answer(200, body), ev.ForwardLost) for body in bodies)]

    for one, expected in said:
        async with linked(one, listens=False) as end:
            end.forward(1)
            await until(lambda end=end: end.events)
            assert [type(event) for event in end.events] == [expected], one


async def test_that_nobody_is_there_yet_is_no_error(said):
    """A connection is opened ahead of need, where somebody is."""
    nobody = End("http://127.0.0.1:1")
    nobody.link.warm()
    await until(lambda: nobody.link.shared._opening is None)
    nobody.forward(1)
    await until(lambda: nobody.events)
    assert nobody.events == [ev.ForwardRefused(1)]
    await nobody.link.close()
    assert said() == []


async def test_a_question_about_the_federation_is_asked_as_it_is():
    async with linked(answer(200, b"[2]"), listens=False, delay_s=60.0) as end:
        response = await end.link.ask_federation(b"[1]", 20.0)
        assert (response.status, response.body) == (200, b"[2]")
        ((asked, _),) = end.neighbor.seen
        assert (asked, end.neighbor.bodies) == (f"POST {SPOKEN[0].federation}", [b"[1]"])


async def test_what_is_recalled_once_it_has_left_closes_its_connection():
    """The neighbor sees that nobody waits any more."""
    async with linked(b"", listens=False) as end:
        end.forward(1)
        await until(lambda: end.neighbor.seen)
        assert end.link._client.busy == 1
        end.link.recall(1)
        assert (end.link._client.busy, end.events, end.became) == (0, [], ["recalled"])
        await until(lambda: not end.neighbor._connections)


async def test_a_neighbor_that_is_none_any_more_gives_back_what_is_away_there():
    async with linked(answer(200), listens=False, delay_s=60.0) as end:
        for ref in (1, 2):
            end.forward(ref)
        end.link.disconnect()
        assert sorted(event.ref for event in end.events) == [1, 2]
        assert end.link._ways == {}


async def test_a_node_that_is_silent_or_refuses_has_the_next_one_of_its_cluster_called():
    """What is away stays where it is, and is cancelled there as that node understands it, until
    nothing comes from that one."""
    speaks, old = stream(encode_report(REPORT), ends=False), SPOKEN[1]
    found, reports = answer(200, {"found": True}), f"GET {old.reports}"

    async with scripted(speaks) as other:
        first = answer(400), speaks, b"", answer(400), speaks, answer(503), found
        async with linked(*first, more_urls=[other.url]) as end:
            node = end.neighbor
            await until(lambda: end.of(ev.ReportReceived))
            end.forward(1)
            await until(lambda: node.bodies[-1])
            node.hang_up(reports)  # the same one is called again, and speaks
            await until(lambda: len(end.of(ev.ReportReceived)) == 2)
            assert (end.link.url, other.seen, end.became) == (node.url, [], [])
            node.hang_up(reports)
            await until(lambda: len(end.of(ev.ReportReceived)) == 3)
            assert (end.link.url, end.link._calls) == (other.url, SPOKEN[0])
            end.link.ask_cancel(1)
            await until(lambda: node.seen[-1][0] == f"POST {old.cancel}")
            node.answers(speaks)
            other.answers(RESET)
            other.hang_up("GET")
            await until(lambda: len(end.of(ev.ReportReceived)) == 4)
            assert (end.link.url, end.became) == (node.url, [])
            node.answers(RESET)
            node.hang_up("GET")
            await until(lambda: end.became)
            assert end.became == ["lost"]


async def test_addresses_that_a_neighbor_has_no_more_are_let_go_of_once_nothing_is_under_way(
    monkeypatch,
):
    monkeypatch.setattr(peer_link, "LOOK_AGAIN_S", 0.001)

    async with (
        scripted(b"") as other,
        linked(listens=False, more_urls=[other.url]) as end,
    ):
        link, first = end.link, end.neighbor.url
        clients = link._clients_of
        before, gone = len(end.timers), clients[other.url]
        asked = gone.request("GET", "/", timeout_s=None)
        await until(lambda: other.seen)
        for port in range(1, 6):  # nodes come and go
            link.use_urls([first, f"http://127.0.0.1:{port}"])
        last = link._urls[-1]
        await until(lambda: clients.keys() == {first, last, other.url})
        assert not asked.done()
        other.answers(answer(200))
        asked.cancel()
        await until(lambda: clients.keys() == link._shared_of.keys() == {first, last})
        await until(lambda: not link._closing and len(end.timers) == before)
        link.use_urls([last])
        assert link.url == first, "it is called until it is silent"
        link._call_next(None)
        await until(lambda: clients.keys() == {last})
        assert link._client is clients[last]
        assert link.shared is link._shared_of[last]
