"""Requests of neighbors, by what links them to their visits: the same one may come twice."""

import asyncio
from random import Random

import msgspec

from spillover.core.overflow import events as ev
from spillover.live.engine.timers import Timers
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.live.overflow.foreign_requests import Asker, ForeignRequests
from spillover.live.overflow.relay import Relays
from spillover.live.overflow.waiters import Waiters
from spillover.live.overflow.wire import Forwarded, Stay
from spillover.model.load import LoadNow
from spillover.model.passed import PassedHead
from spillover.model.request import Answer, Outcome, Refusal, Request
from support.loop import until

DONE = Answer(Outcome.DONE, ("a", "b"), None, None)
LOAD = LoadNow(1, 2, 3, 0.5, False)


class Call:
    """A neighbor's call: what it was told, how long that waited on the link, whether it broke."""

    def __init__(self):
        self.told, self.waited_s, self.broken = [], None, False
        self.asker = Asker(self.settle, self.break_off)

    def settle(self, ref, told, waited_s):
        self.told.append(told)
        self.ref, self.waited_s = ref, waited_s

    def break_off(self):
        self.broken = True


class Desk:
    """Foreign requests of two links without delay; `events` has what the machine would get."""

    def __init__(self):
        self.timers = Timers(asyncio.get_running_loop())
        self.links = {y: EmulatedLink(self.timers, Random(1)) for y in range(2)}
        self.events = []
        self.refs = iter(range(1, 100))
        self.waiters = Waiters()
        fed = (lambda: next(self.refs), self.events.append)
        self.relays = Relays(self.events.append, self.waiters, self.timers)
        self.held = ForeignRequests(*fed, self.links, self.waiters, self.relays)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.timers.close()

    def take(self, name="x", origin=0):
        """Returns the ref of the visit, and the call that waits for its end."""
        request, call = Request(name, keyed=True, work=msgspec.Raw(b"1"), path=("a",)), Call()
        forwarded = Forwarded(request, 1.0, None, pulled=False)
        return self.held.take(forwarded, 1e9, origin, call.asker), call

    def take_passed(self, outlet, name="x", origin=0):
        request = Request(name, keyed=True, work=b"", path=("a",))
        forwarded = Forwarded(request, 1.0, LOAD, pulled=True)
        call = Call()
        return self.held.take(forwarded, 1e9, origin, call.asker, outlet), call

    def begin(self, ref):
        """The answer to one that passes through begins. Returns its relay."""
        so_far = ev.SoFar(("b",), 0.0, 0.0, 0.0)
        began = ev.ResponseBegan(ref, so_far=so_far, leg_s=0.0)
        return self.relays.begin(began, self, PassedHead(200, b"OK", ()))

    def pause(self):
        """Of a source."""

    def resume(self):
        """Of a source."""

    def close(self, _):
        """Of a source."""


class Outlet(list):
    """The connection of a neighbor, which writes down what leaves on it."""

    def begin(self, *_):
        self.append("begin")

    def write(self, data):
        self.append(data)

    def end(self, _):
        self.append("end")

    def break_off(self, _):
        self.append("broken")

    def stay(self, *_):
        return Stay(0.0, 0.0, 0.0)


async def test_a_second_visit_can_be_cancelled_after_the_first_was_answered():
    """The answer to the first is still on its way when the neighbor sends the request again."""
    async with Desk() as desk:
        first, call = desk.take()
        desk.links[0].set_faults(cut=True)
        desk.waiters.tell(first, DONE)
        second, _ = desk.take()
        assert desk.held.ref_of("x", 0) == second
        desk.links[0].set_faults(cut=False)
        await until(lambda: call.told == [DONE])
        assert desk.held.ref_of("x", 0) == second
        assert desk.held.ref_of("x") == second
        assert len(desk.held) == 1
        desk.waiters.tell(second, DONE)
        assert desk.held.ref_of("x", 0) is None
        assert len(desk.held) == 0


async def test_an_answer_that_is_lost_breaks_off():
    """Its asker is told nothing, and nothing is left that a drain would wait for."""
    async with Desk() as desk:
        ref, call = desk.take()
        desk.links[0].set_faults(loss=1.0)
        desk.held.settled.clear()
        desk.waiters.tell(ref, DONE)
        assert (call.told, call.broken) == ([], True)
        assert desk.held.settled.is_set()
        assert len(desk.held) == 0


async def test_how_long_an_answer_waited_on_the_link_is_told():
    """It is part of the way back, not of the stay."""
    async with Desk() as desk:
        desk.links[0].set_faults(delay_s=0.05)
        ref, call = desk.take()
        desk.waiters.tell(ref, DONE)
        assert call.told == []
        await until(lambda: call.told == [DONE])
        assert 0.045 <= call.waited_s < 5.0


async def test_one_that_has_left_is_answered_on_its_connection():
    """Nothing is emulated on the way to it any more."""
    async with Desk() as desk:
        desk.links[0].set_faults(delay_s=60.0)
        ref, call = desk.take()
        del desk.links[0]
        desk.waiters.tell(ref, DONE)
        assert (call.ref, call.told, call.waited_s) == (ref, [DONE], 0.0)
        assert len(desk.held) == 0


async def test_who_goes_away_is_not_answered_and_its_work_is_cancelled():
    """Before there is an answer, and while that is on the link."""
    async with Desk() as desk:
        desk.links[0].set_faults(cut=True)
        for answered in (False, True):
            ref, call = desk.take()
            if answered:
                desk.waiters.tell(ref, DONE)
            desk.held.abandon(ref)
            assert desk.events[-1] == ev.Cancelled(ref)
            assert (len(desk.held), call.told) == (1 - answered, [])
            if not answered:
                desk.waiters.tell(ref, DONE)
            desk.links[0].set_faults(cut=False)
            await until(lambda: not len(desk.held))
            assert call.told == [DONE] * (not answered)
            desk.links[0].set_faults(cut=True)


async def test_a_node_that_ends_takes_nothing_and_tells_those_who_wait():
    """What comes then was surely not accepted, so that its neighbor decides again."""
    async with Desk() as desk:
        _, call = desk.take()
        desk.held.close()
        desk.waiters.close()
        assert (call.told, call.broken) == ([None], False)
        count = len(desk.events)
        outlet = Outlet()
        for ref, late in (desk.take("y", 1), desk.take_passed(outlet, "y", 1)):
            (refused,) = late.told
            assert (refused.ref, refused.origin) == (ref, 1)
            assert (refused.reason, refused.retry_after_s) == (Refusal.DRAINING, 0.0)
        assert len(desk.events) == count
        assert [desk.held.ref_of(name) for name in "xy"] == [None, None]
        assert (len(desk.held), len(desk.waiters), outlet) == (0, 0, [])


def passing(desk, name="x"):
    """A request that passes through, whose answer has begun: (its ref, its call, its relay, what
    has left on its connection)."""
    outlet = Outlet()
    ref, call = desk.take_passed(outlet, name)
    relay = desk.begin(ref)
    desk.relays.began(ev.Began(ref, 0, ev.SoFar(("a", "b"), 0.0, 0.0, 0.0)))
    return ref, call, relay, outlet


async def test_an_answer_that_begins_is_nobodys_to_settle_and_is_open_until_its_end_has_left():
    async with Desk() as desk:
        ref, call, relay, outlet = passing(desk)
        assert (len(desk.held), desk.held.ref_of("x", 0)) == (1, ref)
        relay.piece(b"1")
        relay.end()
        desk.held.settled.clear()
        desk.waiters.tell(ref, DONE)
        assert outlet == ["begin", b"1", "end"]
        assert desk.held.settled.is_set()
        assert (len(desk.held), desk.held.ref_of("x", 0)) == (0, None)
        assert (call.told, call.broken) == ([], False)
        assert not any(isinstance(event, ev.Cancelled) for event in desk.events)


async def test_an_answer_of_which_the_link_loses_a_part_is_broken_off_and_its_work_ends():
    """Nothing is left that a drain would wait for."""
    async with Desk() as desk:
        ref, call, relay, outlet = passing(desk)
        desk.links[0].set_faults(loss=1.0)
        desk.held.settled.clear()
        relay.piece(b"1")
        assert outlet == ["begin", "broken"]
        assert desk.events[-1] == ev.Cancelled(ref)
        assert desk.held.settled.is_set()
        assert (len(desk.held), desk.held.ref_of("x", 0)) == (0, None)
        assert call.told == []


async def test_a_node_that_ends_breaks_off_what_passes_and_tells_who_still_waits():
    async with Desk() as desk:
        _, begun, _, outlet = passing(desk)
        silent = Outlet()
        _, waits = desk.take_passed(silent, "y")
        desk.held.close()
        desk.waiters.close()
        assert outlet == ["begin", "broken"]
        assert (begun.told, waits.told, waits.broken, silent) == ([], [None], False, [])
        assert len(desk.held) == 0
