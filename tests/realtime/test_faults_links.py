"""Links that are lossy and slow in the middle of a burst.

What must hold under all of it is in `support.faults.reckoning`; here is what breaks, and that it
was felt.
"""

from __future__ import annotations

import asyncio
import json
import time

from support.faults import federation as federations
from support.faults.breaking import spoiled

ALL = ("ab", "ba", "bc", "cb", "cd", "dc", "da", "ad")


def test_lossy_and_slow(endure):
    """A fifth of everything lost on all links; and all links slow for a while, 300 ms."""
    found = endure(
        {
            "loss 0.2": spoiled(ALL, 3.0, {"loss": 0.0}, loss=0.2),
            "slow 300 ms": spoiled(ALL, 1.0, {"delay_ms": 5.0}, delay_ms=300.0),
        }
    )
    lossy, slow = found.values()
    assert lossy.ends(keyed=True) == {"done"}
    assert lossy.outcomes(keyed=False)["outcome_unknown"] > 0
    assert slow.ends(keyed=True) == slow.ends(keyed=False) == {"done"}
    assert slow.doubled(keyed=True) == 0


ORDERED = 12


def test_order_is_kept_while_a_link_is_slow(tmp_path, free_ports):
    """What is handed on one after the other arrives so, also over a link that becomes slow and
    fast again: what left early is never overtaken."""
    clusters = {
        "a": {"servers": 3 * ORDERED, "queue_limit": 0, "handler": federations.ASYNC},
        "b": {"servers": 1, "handler": federations.ASYNC},
    }
    pair = federations.Federation(
        directory=tmp_path / "pair",
        ports=free_ports(2),
        clusters=clusters,
        links=("ab",),
        policy="paper",  # which hands on as requests come
    )
    try:
        took_s = asyncio.run(_in_order(pair))
    finally:
        pair.close()
    lines = [line.split() for line in pair.effects.read_text().splitlines()]
    arrived = [int(work.removeprefix("ordered-")) for work, _, cluster in lines if cluster == "b"]
    assert sorted(arrived) == list(range(3 * ORDERED))
    fast, slow, fast_again = (
        [place for place, index in enumerate(arrived) if index // ORDERED == third]
        for third in range(3)
    )
    assert max(fast) < min(slow)
    # Each leaves in its turn, which the tests of the emulated link hold it to, but on a connection
    # of its own: what leaves in one turn may be read in another order. Delays alone would let all
    # of the last ones arrive before all of the slow ones.
    overtaken = sum(later < early for early in slow for later in fast_again)
    assert overtaken <= ORDERED**2 // 4, arrived
    assert took_s > 0.3


async def _in_order(pair):
    """Fill a, then hand on to b one at a time, slowly in the middle; how long until b has all."""
    await pair.start()
    for index in range(3 * ORDERED):
        await _post(pair, f"filling-{index}", 60_000)
    began_s = time.monotonic()
    for index in range(3 * ORDERED):
        if index % ORDERED == 0:
            await pair.set_links("ab", delay_ms=300.0 if index == ORDERED else 5.0)
        await _post(pair, f"ordered-{index}", 1)
    async with asyncio.timeout(10.0):
        while True:
            state = await pair.state("b")
            if state["ledger"]["foreign"]["answered"] == 3 * ORDERED:
                return time.monotonic() - began_s
            await asyncio.sleep(0.02)


async def _post(pair, work, hold_ms):
    """Accepted when this returns."""
    client = pair.client("a")
    body = json.dumps({"payload": {"work": work, "hold_ms": hold_ms}}).encode()
    headers = [(b"Prefer", b"respond-async")]
    try:
        response = await client.request(
            "POST", "/requests", headers=headers, body=body, timeout_s=5.0
        )
    finally:
        await client.close()
    assert response.status == 202, response.body
