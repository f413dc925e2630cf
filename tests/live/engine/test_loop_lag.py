"""How late an event loop is, as others see it: while it stands still, and when it goes on."""

import asyncio
import threading

from spillover.live.engine.loop_lag import PERIOD_S, LoopLag
from support.loop import turn, until

HELD_UP_S = 4 * PERIOD_S


def hold_up():
    """Block the loop, without the CPU that others need."""
    threading.Event().wait(HELD_UP_S)


async def test_a_loop_that_stands_still_is_late_by_all_but_a_period():
    """It is told while it lasts; the most, once."""
    lag = LoopLag()
    assert (lag.now_s(), lag.take_s()) == (0.0, 0.0), "nobody watches yet"
    lag.watch(asyncio.get_running_loop())
    assert lag.now_s() == 0.0
    hold_up()
    assert HELD_UP_S - PERIOD_S <= lag.now_s() < HELD_UP_S + 30.0
    await until(lambda: lag.now_s() == 0.0)
    assert HELD_UP_S - PERIOD_S <= lag.take_s() < HELD_UP_S + 30.0
    assert lag.take_s() < HELD_UP_S - PERIOD_S
    lag.close()


async def test_nobody_is_late_any_more_once_it_is_closed():
    lag = LoopLag()
    lag.watch(asyncio.get_running_loop())
    hold_up()
    lag.close()
    await turn(1.5 * PERIOD_S)
    hold_up()
    assert (lag.now_s(), lag.take_s()) == (0.0, 0.0)
