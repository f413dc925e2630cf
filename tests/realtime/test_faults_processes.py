"""Processes that are killed and started again in the middle of a burst.

What must hold under all of it is in `support.faults.reckoning`; here is what breaks, and that it
was felt.
"""

import asyncio

HOME, RELAY, RUNNER = "a", "b", "c"


def killed(cluster):
    """SIGKILL while the burst is everywhere, and a new life at the same address."""

    async def fault(ring):
        await ring.holds_foreign(RUNNER)
        await ring.holds_foreign(RELAY, 1)
        ring.kill(cluster)
        await asyncio.sleep(0.3)
        ring.spawn(cluster)
        await ring.healthy()

    return fault


def test_killed_and_started_again(endure):
    """A relay, a runner and a home: each loses all that it knew. Clients with a key ask its next
    life again, under the same name, and are answered."""
    victims = {"relay": RELAY, "runner": RUNNER, "home": HOME}
    found = endure({f"{role} killed": killed(cluster) for role, cluster in victims.items()})
    for role, cluster in victims.items():
        told = found[f"{role} killed"].told
        at_dead = [one for one in told if one.home == cluster]
        assert any(one.attempts > 1 and one.outcome == "done" for one in at_dead)
        assert any(one.outcome == "unreachable" for one in at_dead)
        assert [one for one in told if one.home != cluster and one.attempts != 1] == []
        reckoning = found[f"{role} killed"]
        assert reckoning.ends(keyed=True) == {"done"}
        assert reckoning.ends(keyed=False, but_at=cluster) <= {"done", "outcome_unknown"}
