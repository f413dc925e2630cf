"""Wall clocks that jump under running nodes, in the middle of a burst.

What must hold under it is in `support.faults.reckoning`; here is what breaks, and that it was felt.
"""

import asyncio
import shutil
import subprocess
from functools import partial

import pytest

from support.faults import federation as federations
from support.faults import load as loads
from support.faults import reckoning as reckonings

HOUR_S = 3600
SEEN_S = 1.1
"""A clock that was set is seen by then: its file is read again as the second changes. To read it
at each look at the clock would keep both cores of a small machine busy."""


@pytest.fixture
def wall_clocks(require, tmp_path):
    """`(environment, set_clock)`: by cluster, with a wall clock of its own that `set_clock(cluster,
    offset_s)` moves while it runs. The monotonic clock is left alone."""
    require(shutil.which("faketime"), "faketime (Debian: apt-get install faketime)")
    library = subprocess.run(
        ["faketime", "-m", "-f", "+0", "printenv", "LD_PRELOAD"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()

    def set_clock(cluster, offset_s):
        new = tmp_path / f"{cluster}.new"
        new.write_text(f"{offset_s:+d}\n")
        new.replace(tmp_path / f"{cluster}.clock")

    environment = {}
    for cluster in "abcd":
        set_clock(cluster, 0)
        environment[cluster] = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(tmp_path / f"{cluster}.clock"),
            "FAKETIME_CACHE_DURATION": "0",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
    return environment, set_clock


@pytest.mark.timeout(300)
def test_clocks_that_jump(wall_clocks, tmp_path, free_ports):
    """Wall clocks go forth and back by hours under running nodes, which does not touch them; and
    one that is killed comes back in the past: its epoch goes back, and it is heard all the same."""
    environment, set_clock = wall_clocks
    # On threads, time.sleep fails under libfaketime.
    clusters = {c: f | {"handler": federations.ASYNC} for c, f in federations.RING.items()}
    ring = federations.Federation(
        directory=tmp_path / "ring",
        ports=free_ports(4),
        clusters=clusters,
        environment=environment,
    )
    epochs = []

    async def jump():
        await ring.holds_foreign("c")
        set_clock("a", HOUR_S)
        set_clock("c", -HOUR_S)
        await asyncio.sleep(SEEN_S)
        set_clock("a", -HOUR_S)
        set_clock("c", HOUR_S)
        await asyncio.sleep(SEEN_S)
        await ring.holds_foreign("b", 1)
        epochs.append((await ring.state("b"))["ledger"]["epoch"])
        ring.kill("b")
        set_clock("b", -24 * HOUR_S)
        ring.spawn("b")
        await ring.healthy()
        epochs.append((await ring.state("b"))["ledger"]["epoch"])

    async def endured():
        await ring.start()
        longer = lambda: ring.times_longer  # noqa: E731
        send = partial(loads.send, "clocks", ring.urls, loads.Load(), times_longer=longer)
        return await reckonings.under(ring, "clocks jump", send, jump)

    try:
        reckoning = asyncio.run(endured())
    finally:
        statuses = ring.close()
    assert not reckoning.wrongs, reckoning.wrongs[:10]
    assert not any(statuses.values()), statuses
    assert epochs[1] < epochs[0] - 23 * HOUR_S * 1000
    assert reckoning.ends(keyed=True) == {"done"}
