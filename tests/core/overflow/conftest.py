"""A machine that is told a story: events in, exact commands out, invariants checked each time."""

from collections import deque
from random import Random

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.settings import NodeSettings
from spillover.model.load import LoadReport
from spillover.model.request import Outcome, Request

FORWARD_DRAW = 0.99


class Draws(Random):
    """The random source with its draws written down in advance; 0 after the last of them."""

    def __init__(self):
        super().__init__(0)
        self.coming = deque()

    def random(self):
        return self.coming.popleft() if self.coming else 0.0


class Story:
    """Cluster a with one server and neighbors b and c, unless told otherwise, from time 0 on.

    Draws are 0 unless given, so that requests are kept; with `away=True` the draw is 0.99, which
    with one request waiting and equal neighbors means: forward, to the last eligible one.
    """

    def __init__(self, *, neighbors=("b", "c"), delay_s=0.0, **settings):
        self.draws = Draws()
        told = {"cluster": "a", "servers": 1, "policy": "paper", **settings}
        ways = [(neighbor, delay_s) for neighbor in neighbors]
        self.machine = NodeMachine(NodeSettings(**told), ways, self.draws, 0.0)
        self.requests = {}
        self.now_s = 0.0

    def tell(self, event, now_s=None):
        """Hand an event in, at the time given or the last one; the commands."""
        self.now_s = self.now_s if now_s is None else now_s
        commands = self.machine.handle(event, self.now_s)
        self.machine.check()
        return commands

    def arrive(
        self,
        ref,
        now_s=None,
        *,
        away=False,
        path=(),
        origin=None,
        keyed=True,
        deadline_s=100.0,
        size_bytes=0,
        asked=None,
        features=None,
        **brought,
    ):
        """A request arrives: from a client, perhaps with what affinity goes by, or with a path from
        neighbor 0 (b), perhaps with its `load`, or `pulled`."""
        if away:
            self.draws.coming.append(FORWARD_DRAW)
        if origin is None:
            origin = 0 if path else ev.HOME
        self.requests[ref] = Request(
            f"r{ref}", keyed, {"work": ref}, path, size_bytes=size_bytes, asked=asked
        )
        self.requests[ref].features = features
        event = ev.Arrived(ref, self.requests[ref], deadline_s, origin, **brought)
        return self.tell(event, now_s)

    def fill(self, *refs):
        """The first of these runs, the others wait."""
        for ref in refs:
            self.arrive(ref)

    def end(self, ref, now_s=None, outcome=Outcome.DONE, service_s=0.25, result=None):
        return self.tell(ev.ServiceEnded(ref, outcome, service_s, result), now_s)

    def hear(
        self,
        *neighbors,
        now_s=None,
        sequence=1,
        epoch=1,
        accepting=True,
        near=1.0,
        hears=("a",),
        degraded=False,
        failed_share=0.0,
        **load,
    ):
        """Reports of these neighbors: idle, well, and hearing us, unless told otherwise, with no
        `load` unless given. The commands that follow from the last of them."""
        commands = []
        for y in neighbors:
            told = (near, near, 0, 1, accepting, hears, degraded, failed_share)
            commands = self.tell(
                ev.ReportReceived(y, LoadReport(epoch, sequence, *told, **load)), now_s
            )
        return commands

    @staticmethod
    def report(sequence, *, accepting=True, queue_length=0, servers=1, epoch=1):
        """Returns one of a neighbor that is well and hears us."""
        return LoadReport(epoch, sequence, 1.0, 1.0, queue_length, servers, accepting, ("a",))

    def wake(self, now_s):
        """The timer fires at this time; the commands, gossip left out."""
        commands = self.tell(ev.TimerFired(), now_s)
        return [c for c in commands if not isinstance(c, ev.Publish | ev.Heartbeat)]

    def part_from(self, y):
        """Neighbor y is to be none and says nothing more, while the others say that they are there.
        What comes of it until its link closes: at once, or after a minute if anything is left."""
        known = [row.handle for row in self.machine.neighbors if row.known and row.handle != y]
        self.tell(ev.Part(y))
        self.tell(ev.LinkDown(y))
        commands = self.wake(self.now_s)
        while y in self.machine.neighbors.by_handle:
            now_s = self.now_s + 0.25
            for other in known:
                self.tell(ev.ReportReceived(other, None), now_s)
            commands += self.wake(now_s)
        return commands

    def start(self, ref, at_s, deadline_s=100.0):
        return ev.Start(ref, self.requests[ref], at_s, deadline_s)

    def forward(self, ref, neighbor, deadline_s=100.0):
        return ev.Forward(ref, neighbor, self.requests[ref].onward("a"), deadline_s)

    @property
    def ledger(self):
        return {
            f"{side}.{entry}": count
            for side in ("home", "foreign")
            for entry, count in getattr(self.machine.ledger, side).items()
            if count
        }


@pytest.fixture
def story():
    """The maker of stories; its arguments are settings of the node."""
    return Story
