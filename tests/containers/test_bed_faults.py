"""A site of the compose testbed is cut off, frozen, killed or slowed down in the middle of a burst
at its neighbor a: who takes over, what becomes of every request, how soon all is as before.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from dataclasses import dataclass
from functools import partial

import pytest

from support import waiting
from support.containers import site_load

# Lease members settle meanwhile, and have a test of their own afterwards.
pytestmark = pytest.mark.usefixtures("watch")

HURT, OTHERS = "b", "acde"
SERVICE = "node-b"

NOTICED_S = 8.0
"""Until its neighbors have it for dead: after 2.5 s of silence, and their next attempt."""
BACK_S = 60.0
"""For a container to start and its neighbors to find it, on a machine that has much to do."""
RESUMES_S = 2.0
REST_S = 5.0
AFTER_S = 1.0
LOOKS_MIN = 10

UNKNOWN_SHARE_MAX = 0.05
"""Of the unkeyed requests at other sites: those that the site may have had in its hands."""


@dataclass
class Course:
    """What happened when, by time.monotonic(). `noticed_s`: its neighbors have it for dead;
    `healed_s`: it is in order again; the rest are durations."""

    hurt_s: float = 0.0
    noticed_s: float = 0.0
    mended_s: float = 0.0
    healed_s: float = 0.0
    resumed_s: float = 0.0
    rested_s: float = 0.0


class Scene:
    """One fault under load, from a federation that is well to one that is well again."""

    def __init__(self, beds, bed):
        self._beds, self._bed = beds, bed
        self.course = Course()

    def play(self, hurt, mend, back=None):
        """The load, all ended. `back()` says when the site is in order again: at once, or once it
        answers."""
        asyncio.run(self._play(hurt, mend, back or self._answers))
        return self.load

    async def _play(self, hurt, mend, back):
        self._beds.until(self._bed.is_well, 30.0, "a federation that is well")
        course, now_s = self.course, site_load.now_s
        async with site_load.SiteLoad(self._bed.urls) as load:
            self.load = load
            await load.until(
                lambda: self._over({"b", "e"}, 0.0), 20.0, "a burst that goes both ways"
            )
            await asyncio.to_thread(hurt, SERVICE)
            course.hurt_s = now_s()
            try:
                await load.until(self._is_noticed, NOTICED_S, "notice")
                course.noticed_s = now_s()
                await load.until(self._is_seen_around, NOTICED_S, "all others")
                await load.moment(AFTER_S)
            finally:
                course.mended_s = now_s()
                await asyncio.to_thread(mend, SERVICE)
            await load.until(back, BACK_S, "the site that was hurt")
            course.healed_s = now_s()
            resumed = partial(self._over, {HURT}, course.healed_s)
            course.resumed_s = await load.until(resumed, BACK_S, "forwards to it")
            await load.until(self._is_well, BACK_S, "all neighbors")
            await load.end()
            course.rested_s = await load.until(load.rests, BACK_S, "ledgers at rest")

    async def _answers(self):
        return await self.load.state(HURT) is not None

    async def _is_noticed(self):
        load = self.load
        return await load.sees("a", b=False, e=True) and await load.sees("c", b=False, d=True)

    async def _is_well(self):
        """To both of its neighbors, and they to it."""
        load = self.load
        return (
            await load.sees("a", b=True)
            and await load.sees("c", b=True)
            and await load.sees(HURT, a=True, c=True)
        )

    async def _is_seen_around(self):
        """The federation, as seen from a: all but the one, each asked within a limit of time that a
        machine which has much to do may pass once."""
        found = await self.load.federation("a")
        unreachable = {cluster for cluster in found or () if "unreachable" in found[cluster]}
        return unreachable == {HURT}

    def _over(self, neighbors, since_s):
        """Whether requests of a, sent since then, have come back over each of these."""
        sent = self.load.sent(since_s)
        return neighbors <= {one.path[1] for one in sent if one.home == "a" and len(one.path) > 1}

    # --- the account --------------------------------------------------------------------------

    def judge(self, name, allowed_at_hurt):
        """What must hold after every fault. `allowed_at_hurt`: how an unkeyed request may end whose
        user is at the site that was hurt."""
        load, course, slack = self.load, self.course, waiting.slack()
        self._beds.tell(self._figures(name))
        assert load.imbalances == []
        assert all(load.looks[cluster] > LOOKS_MIN for cluster in OTHERS), load.looks
        assert load.outcomes(keyed=True, homes=OTHERS + HURT).keys() == {"done"}
        unkeyed = load.outcomes(keyed=False, homes=OTHERS)
        assert unkeyed.keys() <= {"done", "outcome_unknown"}, unkeyed
        assert unkeyed["outcome_unknown"] <= UNKNOWN_SHARE_MAX * unkeyed.total(), unkeyed
        assert load.outcomes(keyed=False, homes=HURT).keys() <= {"done", *allowed_at_hurt}
        meanwhile = load.sent(course.noticed_s, course.mended_s)
        others = [one for one in meanwhile if one.home != HURT]
        assert Counter(one.outcome for one in others).keys() == {"done"}
        assert not [one for one in others if HURT in one.path]
        assert {one.path[1] for one in others if one.home == "a" and one.path[1:]} == {"e"}
        assert course.resumed_s <= RESUMES_S * slack
        assert course.rested_s <= REST_S * slack

    def _figures(self, name):
        load, course = self.load, self.course
        keyed, unkeyed = (
            dict(load.outcomes(keyed=keyed, homes=OTHERS + HURT)) for keyed in (True, False)
        )
        return (
            f"{name}: noticed after {course.noticed_s - course.hurt_s:.2f} s, "
            f"in order {course.healed_s - course.mended_s:.2f} s after it was mended, forwarding "
            f"to it resumed {course.resumed_s:.2f} s later, ledgers at rest after "
            f"{course.rested_s:.2f} s; keyed {keyed}, unkeyed {unkeyed}"
        )


@pytest.fixture
def scene(beds, bed):
    return Scene(beds, bed)


def at_once():
    return True


def test_a_site_is_cut_off_and_comes_back(scene, bed):
    """It serves its own: nobody else answers them, and none is lost."""
    load = scene.play(bed.cut, bed.join, at_once)
    scene.judge("cut", {"outcome_unknown"})
    own = [
        one for one in load.sent(scene.course.noticed_s, scene.course.mended_s) if one.home == HURT
    ]
    assert own
    assert {(one.outcome, one.path) for one in own} == {("done", (HURT,))}


def test_a_site_stands_still_and_goes_on(scene, bed):
    """Whoever asked it meanwhile has an answer in the end, with a key or without."""
    scene.play(bed.pause, bed.unpause, at_once)
    scene.judge("paused", {"outcome_unknown"})


def test_a_site_is_killed_and_started(scene, bed):
    """Its own users without keys may be told nothing; all others have their answers."""
    scene.play(bed.kill, bed.start_again)
    scene.judge("killed", {"unreachable", "outcome_unknown"})


def test_a_site_without_cpu_loses_nothing(beds, bed):
    """A fiftieth of a core, for a while: slower, and everybody has an answer."""

    async def slowed():
        async with site_load.SiteLoad(bed.urls) as load:
            await load.moment(0.5)
            await asyncio.to_thread(bed.throttle, SERVICE, 0.02)
            slow_s = site_load.now_s()
            try:
                await load.moment(3.0)
            finally:
                fast_s = site_load.now_s()
                await asyncio.to_thread(bed.throttle, SERVICE, 1.0)
            await load.moment(1.0)
            await load.end()
            rested_s = await load.until(load.rests, REST_S, "ledgers at rest")
        return load, load.sent(slow_s, fast_s), rested_s

    beds.until(bed.is_well, 30.0, "a federation that is well")
    load, meanwhile, rested_s = asyncio.run(slowed())
    over = Counter(one.path[1] for one in meanwhile if one.home == "a" and one.path[1:])
    outcomes = load.outcomes(keyed=False, homes=OTHERS + HURT)
    beds.tell(
        f"throttled: of the burst {over['b']} went over it and {over['e']} over the other; "
        f"ledgers at rest after {rested_s:.2f} s; unkeyed {dict(outcomes)}"
    )
    assert load.imbalances == []
    assert load.outcomes(keyed=True, homes=OTHERS + HURT).keys() == {"done"}
    assert outcomes.keys() == {"done"}
    assert over["e"] > over["b"]
    beds.until(bed.is_well, 30.0, "a federation that is well")


def test_a_container_that_is_stopped_ends_in_order(beds, bed):
    """It finishes what runs, and exits 0 long before the engine would kill it."""
    answers = []
    body = json.dumps({"payload": {"service_ms": 3000}}).encode()
    asking = threading.Thread(
        target=lambda: answers.append(beds.get(f"{bed.urls['e']}/requests", body))
    )
    asking.start()
    beds.until(lambda: bed.state("e")["busy"] == 1)
    bed.compose("stop", "node-e")
    asking.join(10)
    assert answers[0]["cluster"] == "e"
    assert bed.inspect("node-e")["State"]["ExitCode"] == 0
    bed.start_again("node-e")
    beds.until(bed.is_well, 60.0, "a federation that is well")
