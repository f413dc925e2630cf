"""The client while its node is killed, as a user's program sees it."""

import asyncio
import os
import signal
import time

import pytest

from spillover.client import Answer, AsyncSpillover, SpilloverError
from support.loop import until

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


def _kill_while_asked(urls, pid):
    """Eight ask the first node, which is killed; eight more begin once that is seen. They go on
    until it answers again. Gives when it was killed, and all that was answered."""

    async def main():
        answers, stop = [], asyncio.Event()
        async with AsyncSpillover(urls) as client:
            async with asyncio.TaskGroup() as group:
                for _ in range(8):
                    group.create_task(_asking(client, answers, stop))
                await until(lambda: len(answers) >= 100)
                os.kill(pid, signal.SIGKILL)
                killed_s = time.monotonic()
                await until(lambda: client.nodes.choose(time.monotonic()) == urls[1], 1.0)
                for _ in range(8):
                    group.create_task(_asking(client, answers, stop))
                await until(lambda: _answers("b", killed_s, answers), BACK_S, every_s=0.05)
                stop.set()
            return killed_s, answers, client.stats

    return asyncio.run(main())


def test_a_node_that_comes_back_costs_no_error(up, pair):
    """Others take over meanwhile; what it had is sent to it again, under the same names."""
    bed, urls = up(pair, "--seed", "1")
    killed_s, answers, stats = _kill_while_asked([urls["b"], urls["a"]], bed.nodes()["b"])
    assert all(isinstance(outcome, Answer) for _, _, outcome in answers)
    after = [one.path[0] for begun_s, _, one in answers if begun_s > killed_s + DYING_S]
    assert {"a", "b"} == set(after)
    assert stats.retries >= 1
    assert stats.failed == 0
    assert bed.end() == 0
