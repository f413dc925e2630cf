"""The client while its node is killed, as a user's program sees it."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from spillover.client import Answer, AsyncSpillover, OutcomeUnknown, Retries, SpilloverError
from support.loop import turn, until
from support.waiting import slack

SERVED_WITHIN_S = 1.0
DYING_S = 0.1
"""Until a killed process has let go of its sockets."""
BACK_S = 20.0

PAIR = """
clusters: [{id: a, servers: 5}, {id: b, servers: 5}]
links: [{between: [a, b]}]
"""


@pytest.fixture
def pair(tmp_path):
    """A file with two clusters."""
    path = tmp_path / "pair.yaml"
    path.write_text(PAIR)
    return str(path)


async def _asking(client, answers, stop):
    """One request after the other: how long each took, and what it came to."""
    while not stop.is_set():
        begun_s = time.monotonic()
        try:
            outcome = await client.run({"service_ms": 20})
        except SpilloverError as error:
            outcome = error
        answers.append((begun_s, time.monotonic() - begun_s, outcome))


def _answers(cluster, killed_s, answers):
    """Whether it is home to any request that was made after the kill."""
    since_s = killed_s + DYING_S
    later = [one for begun_s, _, one in answers if begun_s > since_s and isinstance(one, Answer)]
    return any(one.path[0] == cluster for one in later)


def _kill_while_asked(urls, pid, *, asked_after_s, retries=None, back=""):
    """Eight ask the first node, which is killed; eight more begin once that is seen. They go on
    for a while, from when `back` answers again if that is to. Gives when it was killed, and all
    that was answered."""

    async def main():
        answers, stop = [], asyncio.Event()
        async with AsyncSpillover(urls, retries=retries) as client:
            async with asyncio.TaskGroup() as group:
                for _ in range(8):
                    group.create_task(_asking(client, answers, stop))
                await until(lambda: len(answers) >= 100)
                os.kill(pid, signal.SIGKILL)
                killed_s = time.monotonic()
                await until(lambda: client.nodes.choose(time.monotonic()) == urls[1], 1.0)
                for _ in range(8):
                    group.create_task(_asking(client, answers, stop))
                if back:
                    await until(lambda: _answers(back, killed_s, answers), BACK_S, every_s=0.05)
                await turn(asked_after_s)
                stop.set()
            return killed_s, answers, client.stats

    return asyncio.run(main())


def test_others_take_over_at_once_and_only_what_was_there_is_unknown(up, pair):
    bed, urls = up(pair, "--seed", "1", "--no-restart")
    homes = [urls["b"], urls["a"]]
    killed_s, answers, stats = _kill_while_asked(
        homes, bed.nodes()["b"], asked_after_s=1.5, retries=Retries(comeback_s=0.5)
    )
    dead_s = killed_s + DYING_S * slack()
    lost = [begun_s for begun_s, _, outcome in answers if not isinstance(outcome, Answer)]
    assert all(isinstance(one, Answer | OutcomeUnknown) for _, _, one in answers)
    assert len(lost) <= 8
    assert all(begun_s <= dead_s for begun_s in lost)
    after = [(took_s, one) for begun_s, took_s, one in answers if begun_s > dead_s]
    assert len(after) > 50
    assert max(took_s for took_s, _ in after) < SERVED_WITHIN_S * slack()
    assert all(one.path[0] == "a" for _, one in after)
    assert stats.failed == len(lost)
    assert bed.end() == 0


def test_a_node_that_comes_back_costs_no_error(up, pair):
    """What it had is sent to it again, under the same names."""
    bed, urls = up(pair, "--seed", "1")
    homes = [urls["b"], urls["a"]]
    killed_s, answers, stats = _kill_while_asked(
        homes, bed.nodes()["b"], asked_after_s=1.0, back="b"
    )
    assert all(isinstance(outcome, Answer) for _, _, outcome in answers)
    after = [one.path[0] for begun_s, _, one in answers if begun_s > killed_s + DYING_S]
    assert {"a", "b"} == set(after)
    assert after[-1] == "b"
    assert stats.retries >= 1
    assert stats.failed == 0
    assert bed.end() == 0
