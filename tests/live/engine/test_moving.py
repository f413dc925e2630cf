"""What is moving, and when the machine hears of it; answers that the HTTP client is reading."""

import asyncio
import math

from spillover.core.overflow.held import HeldBytes
from spillover.live.engine.moving import STEPS, Moving
from spillover.live.engine.timers import Timers
from support.loop import until

LIMIT = 64 * STEPS


def counting(held=None):
    """A count whose machine knows what it was told, all that it was told, and what tells it."""
    held = held or HeldBytes(LIMIT)
    told = []

    def tell(count):
        told.append(count)
        held.move(count)

    timers = Timers(asyncio.get_running_loop())
    return Moving(timers, held, tell), held, told, timers


async def test_the_machine_is_told_in_steps_and_when_nothing_is_left():
    """Not within the call that changes it, but before anything else; once for all changes."""
    moving, held, told, timers = counting()
    changes = []
    for change in (64, 1, 100, 10, -160, -14, -1):
        before = list(told)
        moving.add(change)
        assert told == before, "told at once"
        timers.run_due(timers.clock())
        changes.append(held.moving_bytes)
    assert changes == [0, 65, 165, 165, 15, 15, 0]
    told.clear()
    moving.add(500)
    moving.add(-500)
    await until(lambda: told)  # where no event comes, too
    timers.run_due(math.inf)
    assert told == [0]


async def test_too_much_is_what_requests_leave_no_room_for():
    """Counted to the byte, whatever the machine knows already."""
    moving, held, _, timers = counting()
    room = held.beside_requests_bytes
    held.request_bytes = 1000
    moving.add(room - 1000)
    assert not moving.is_too_much
    moving.add(1)
    assert moving.is_too_much
    timers.run_due(math.inf)
    assert moving.is_too_much
    moving.add(-1)
    assert not moving.is_too_much
