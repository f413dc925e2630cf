"""The phases of a lease demo from the start of its members, which are shells here, to their end."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager

import pytest

from spillover.model.errors import InputError, RunError
from spillover.testbed.redis import RedisPlace
from spillover.testbed.watchdog import Watchdog
from spillover.tools.demo.leases import run as demo
from spillover.tools.demo.leases.members import Members
from spillover.tools.demo.leases.plan import JOINED, Disturbance, LeasePlan
from spillover.tools.demo.leases.watching import Look
from support.shown_leases import Shown

pytestmark = pytest.mark.processes

NOBODY = RedisPlace("redis://127.0.0.1:1/0", "7.2.4", is_own=False)
PLAN = LeasePlan(
    records=4, streams=4, members=3, max_lease_ms=3_000.0, seed=5, redis=None, keep=False,
    limit_s=30.0,
)  # fmt: skip
"""All records lie there before the members start: nothing is fed."""

JOINS_S = 0.2
HOLDS = {"m1": (0, 3), "m2": (1,), "m3": (2,), "m4": (3,)}
"""The last one when it has joined; the first gives that stream up a bit later."""
RELEASES = '{"at_s": 2.0, "node": "m1", "event": "released", "partition": 3, "epoch": 1}'
LEAVES = "trap 'exit 0' TERM; sleep 60 >&2 & wait"
GIVES_UP = f"(sleep 0.4 >&2; echo '{RELEASES}') & {LEAVES}"


def script(node, streams, then=LEAVES):
    line = '{{"at_s": 1.0, "node": "{}", "event": "acquired", "partition": {}, "epoch": 1}}'
    says = "".join(f"echo '{line.format(node, stream)}'\n" for stream in streams)
    return says + then


class Shells(Members):
    """Each says at once what it holds."""

    thens = {}  # noqa: RUF012 - each test has its own

    def _command(self, node):
        then = self.thens.get(node, GIVES_UP if node == "m1" else LEAVES)
        return ["sh", "-c", script(node, HOLDS.get(node, ()), then)]


@pytest.fixture
def play(tmp_path, monkeypatch):
    """`play(m1=script)`: the run, once its members have gone. One joins after a while."""
    monkeypatch.setattr(LeasePlan, "schedule", [Disturbance(JOINS_S, JOINED, "m4")])

    def run(**thens):
        with Watchdog() as watchdog:
            one = demo._Run(PLAN, NOBODY, "g", tmp_path, watchdog, Shown())
            members = Shells(PLAN, NOBODY.url, "g", tmp_path, watchdog, one._watch.lines.append)
            members.thens, one._members = thens, members
            one._watch.members |= set(HOLDS)
            one._watch.looks.append(Look(1.0, 4, 4))

            async def main():
                try:
                    await one._run_members()
                finally:
                    await members.end()
                    await one._watch.close()

            asyncio.run(asyncio.wait_for(main(), 20.0))
        return one

    return run


def test_from_the_first_sharing_out_to_the_end(play):
    before_s = time.time()
    one = play()
    assert one._display.told == [
        "members start and share the streams out", "all have their share", "m4 joined",
        "m4 has its share",
    ]  # fmt: skip
    assert set(one._phases_s) == {"start", "disturb", "rest", "stop"}
    assert all(0.0 <= length_s < 20.0 for length_s in one._phases_s.values())
    assert [mark.kind for mark in one._marks] == [JOINED, "ended"]
    joined, ended = one._marks
    assert before_s <= one._began_s <= one._settled_s < joined.at_s < ended.at_s <= time.time()
    assert joined.at_s - one._settled_s >= JOINS_S
    assert one._settled.is_set()
    assert one._display.views
    assert [member.process.returncode for member in one._members.all.values()] == [0] * 4


def test_a_member_that_ends_by_itself_is_told(play):
    with pytest.raises(RunError, match=r"member m3 ended by itself \(3\): no room"):
        play(m3="echo no room >&2; exit 3")


def test_a_member_that_leaves_in_bad_order_is_told(play):
    with pytest.raises(RunError, match="member m1 ended with status 4: it said nothing"):
        play(m1=GIVES_UP.replace("exit 0", "exit 4"))


def test_members_have_their_time_to_leave(play, monkeypatch):
    """The shutdown time, which is a second here, and more on a busy machine."""
    monkeypatch.setattr(demo, "LEAVE_WITHIN_S", -0.7)
    with pytest.raises(RunError, match=r"members were not gone 0\.3 s after SIGTERM"):
        play(m2="trap '' TERM; sleep 60 >&2")


def test_an_old_redis_is_refused_before_anything_is_begun(tmp_path, monkeypatch):
    @contextmanager
    def old(*_):
        yield RedisPlace(NOBODY.url, "6.0.16", is_own=False)

    monkeypatch.setattr(demo, "redis_at", old)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(InputError, match=r"expected Redis 6.2 or later, got 6.0.16"):
        demo.run_lease_demo(PLAN, Shown())
    assert list(tmp_path.iterdir()) == []
