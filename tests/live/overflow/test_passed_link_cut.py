"""A neighbor that dies at every byte of an answer that passes through: its reader sees that."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from random import Random

from spillover.core.overflow import events as ev
from spillover.core.overflow.events import SoFar
from spillover.live.engine.timers import Timers
from spillover.live.overflow.agreement import Agreement, Terms
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.live.overflow.passed_link import PassedLink
from spillover.live.overflow.passed_wire import encode_end, encode_head, piece_head
from spillover.live.overflow.peer_clients import PeerClients
from spillover.live.overflow.protocol import STREAM
from spillover.live.overflow.relay import Relays
from spillover.live.overflow.waiters import Waiters
from spillover.live.overflow.wire import Caller, Stay
from spillover.model.passed import PassedHead, PassedRequest
from spillover.model.request import DONE, Answer, Request
from spillover.model.topology import Cluster, Topology
from support.loop import until

TOPOLOGY = Topology(name="test", clusters=(Cluster(id="a", servers=1),))
STAY = Stay(0.0, 0.0, 0.0)
HTTP = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % STREAM
FRAMES = (
    encode_head(PassedHead(200, b"OK", ()), SoFar(("a", "b"), 0.0, 0.0, 0.0), STAY),
    piece_head(4) + b"some",
    piece_head(4) + b"more",
    encode_end((), Answer(DONE, ("a", "b")), STAY),
)
CHUNKS = tuple(b"%x\r\n%b\r\n" % (len(frame), frame) for frame in FRAMES)
WHOLE = HTTP + b"".join(CHUNKS) + b"0\r\n\r\n"
AT_ONCE = 50

END_AT = len(HTTP + b"".join(CHUNKS)) - len(b"\r\n")
"""From here on the frame with the end is there."""


class Home:
    """The home's side of one link: `ends` has the kinds of events by which its machine would hear
    of the end of each forward."""

    def __init__(self, port):
        loop = asyncio.get_running_loop()
        self.timers = Timers(loop)
        self.ends = defaultdict(list)
        self.relays = Relays(self._feed, Waiters(), self.timers)
        self.link = PassedLink(
            neighbor=0,
            cluster="b",
            url=f"http://127.0.0.1:{port}",
            emulated_link=EmulatedLink(self.timers, Random(1)),
            away_max=1000,
            agreement=Agreement(Caller("a", "b"), Terms()),
            timers=self.timers,
            clients=PeerClients(TOPOLOGY, None),
            random=Random(1),
            feed=self._feed,
            on_forward=lambda _: None,
            relays=self.relays,
        )

    def _feed(self, event):
        if isinstance(event, ev.ResponseBegan):
            self.relays.began(ev.Began(event.ref, ev.HOME, event.so_far))
        else:
            self.ends[event.ref].append(type(event))

    def hand_over(self, ref, sink):
        self.relays.open(ref, sink)
        work = PassedRequest("GET", b"/", (), b"").encode()
        self.link.forward(ev.Forward(ref, 0, Request(f"r{ref}", False, work, ("a",)), 1e12))

    async def close(self):
        await self.link.close()
        self.timers.close()


class Got:
    """A sink that only counts."""

    def __init__(self):
        self.has_begun, self.body = False, b""

    def begin(self, *_):
        self.has_begun = True

    def piece(self, data):
        self.body += data


def test_an_answer_cut_off_anywhere_is_lost_and_never_answered(run):
    async def main():
        async def answer(reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
            body = await reader.readexactly(length)
            place = int(body.partition(b'"id":"r')[2].partition(b'"')[0])
            writer.write(WHOLE[:place])
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        home = Home(server.sockets[0].getsockname()[1])
        try:
            sinks = {place: Got() for place in range(1, len(WHOLE) + 1)}
            for place, sink in sinks.items():
                home.hand_over(place, sink)
                if place % AT_ONCE == 0 or place == len(WHOLE):
                    await until(lambda upto=place: all(home.ends[k + 1] for k in range(upto)))
            for place, sink in sinks.items():
                is_whole = place >= END_AT
                expected = ev.ForwardAnswered if is_whole else ev.ForwardLost
                assert home.ends[place] == [expected], place
                assert b"somemore".startswith(sink.body)
                assert sink.has_begun or not sink.body
        finally:
            await home.close()
            server.close()

    run(main())
