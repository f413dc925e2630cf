"""What a page of the console that is open costs the node, and how smoothly it moves."""

from __future__ import annotations

import sys
import time
from statistics import fmean

import psutil
import pytest

from support.console_page import tile

MORE_CORES_MAX = 0.1
FRAMES_PER_S_MIN = 30.0
FRAMES = """(for_ms) => new Promise((done) => {
  const gaps = [], end = performance.now() + for_ms;
  let last = performance.now();
  requestAnimationFrame(function next(now) {
    gaps.push(now - last);
    last = now;
    now < end ? requestAnimationFrame(next) : done(gaps.slice(1));
  });
})"""
"""The times between the frames that are drawn, in ms."""


def cores_of(pid, for_s):
    """CPU time of a process by time, from now on."""
    times, began_s = psutil.Process(pid).cpu_times(), time.monotonic()
    time.sleep(for_s)
    now = psutil.Process(pid).cpu_times()
    used_s = now.user + now.system - times.user - times.system
    return used_s / (time.monotonic() - began_s)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_twenty_clusters_cost_the_node_little_and_move_smoothly(up, opened, expect):
    """One page open on one node, five updates a second."""
    bed, urls = up("chord20", "--seed", "1")
    node = bed.nodes()["a"]
    without = cores_of(node, 3.0)
    with opened(urls["a"]) as page:
        expect(tile(page, "clusters")).to_have_text("20 of 20")
        more = cores_of(node, 4.0) - without
        gaps_ms = page.evaluate(FRAMES, 2000)
    rate = 1000.0 / fmean(gaps_ms)
    told = f"{100 * more:.1f} % of a core, {rate:.0f} frames/s, {max(gaps_ms):.0f} ms at most"
    print(f"\n  console: {told}")  # noqa: T201
    assert more < MORE_CORES_MAX
    assert rate > FRAMES_PER_S_MIN
