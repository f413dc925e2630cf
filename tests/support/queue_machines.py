"""A producer's machine for tests that go step by step, and the steps that most begin with."""

from __future__ import annotations

from random import Random
from typing import Any

from spillover.core.queue import events as ev
from spillover.core.queue.producer import ProducerMachine
from spillover.core.queue.settings import ProducerSettings

EVEN = {"p1": 0.5, "p2": 0.5}
ONLY_HERE = {"p1": 1.0}


def producer(peers: tuple[str, ...] = ("p2",), **changed: Any) -> ProducerMachine:
    told = {"id": "p1", "buffers": 2, "visibility_s": 10.0, "probe_expiry_s": 5.0, **changed}
    return ProducerMachine(ProducerSettings(**told), peers, Random(1))


def put(machine: ProducerMachine, number: int, now_s: float = 0.0) -> list[ev.Command]:
    """Bring an object in."""
    commands = machine.handle(ev.Offered(number, now_s + 1.0), now_s)
    assert commands == [ev.Admit(number)]
    assert machine.handle(ev.Read(number, number), now_s) == [ev.Store(number)]
    commands = machine.handle(ev.Stored(number), now_s)
    machine.check()
    return commands


def taken(ref: int, access: dict[str, float], now_s: float = 0.0, **changed: Any) -> ev.Taken:
    told = {"max_hops": 1, "avoid_visited": False, "deadline_s": now_s + 30.0, **changed}
    return ev.Taken(ref=ref, probe_id=f"take{ref}", consumer="c", access=access, **told)


def given(commands: list[ev.Command]) -> ev.Give:
    (give,) = [one for one in commands if isinstance(one, ev.Give)]
    return give
