"""When relays look at what passes, and what they leave alone."""

from types import SimpleNamespace

import pytest

from spillover.core.overflow import events as ev
from spillover.live.overflow import relay as module
from spillover.live.overflow.relay import SWEEP_S, Relays
from spillover.live.overflow.waiters import Waiters
from spillover.model.passed import PassedHead
from spillover.model.request import DONE, Answer

SO_FAR = ev.SoFar(("a",), 0.0, 0.0, 0.0)


class Passing:
    """Relays on a clock that the test moves. `rings` has when they are to be rung, `fed` what their
    machine hears, `calls` what their sources and sinks are told."""

    def __init__(self, monkeypatch):
        self.now_s, self.rings, self.fed, self.calls = 100.0, [], [], []
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.waiters = Waiters()
        self.relays = Relays(self.fed.append, self.waiters, self)

    def at(self, due_s, ring):
        self.rings.append((due_s, ring))

    def ring(self):
        """Go on to when they are to be rung."""
        ((self.now_s, ring),) = self.rings
        self.rings.clear()
        ring(self.now_s)

    def begin(self, ref):
        kinds = ("begin", "piece", "end", "break_off", "settle", "pause", "resume", "close")
        told = {kind: lambda *_, kind=kind: self.calls.append(kind) for kind in kinds}
        self.relays.open(ref, SimpleNamespace(**told))
        began = ev.ResponseBegan(ref)
        relay = self.relays.begin(began, SimpleNamespace(**told), PassedHead(200, b"", ()))
        self.relays.began(ev.Began(ref, ev.HOME, SO_FAR))
        return relay


@pytest.fixture
def passing(monkeypatch):
    return Passing(monkeypatch)


def test_what_passes_is_looked_at_at_its_period_as_long_as_anything_does(passing):
    passing.begin(1)
    passing.now_s += 0.25
    passing.begin(2)
    for number in range(1, 4):
        assert [due_s for due_s, _ in passing.rings] == [100.0 + number * SWEEP_S]
        passing.ring()
    passing.waiters.tell(1, Answer(DONE, ("a",)))
    passing.ring()
    passing.waiters.tell(2, Answer(DONE, ("a",)))
    passing.ring()
    assert passing.rings == []


def test_an_answer_that_has_come_whole_is_not_broken_off(passing):
    """However long its machine takes to say that the request has ended."""
    passing.relays.total_s = 5.0
    passing.begin(1).end()
    passing.fed.clear()
    while passing.now_s < 1000.0:
        passing.ring()
    assert (passing.fed, passing.calls) == ([], ["begin"])
