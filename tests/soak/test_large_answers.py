"""Twenty answers of 31 MiB at once, wave after wave: the node's memory after the first waves and at
the end. Before connections let go of their answers it grew by 600 MiB with each wave."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvloop

MIB = 2**20
AT_ONCE, ANSWER = 20, 31 * MIB
HELD = 256 * MIB
GROWTH_BYTES = 16 * MIB


@pytest.mark.timeout(0)
def test_waves_of_large_answers_grow_nothing(tmp_path, up, ask, soak_s, waves):
    """Every other wave is keyed, so that its answers are kept, as far as they may. No wave peaks
    above twice what is under way; the last rest like the first."""
    under_way = AT_ONCE * ANSWER
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        port, close = runner.run(waves.serve(ANSWER))
        (tmp_path / "one.yaml").write_text(
            f"clusters: [{{id: a, servers: {AT_ONCE}, held_limit_bytes: {HELD},"
            f" handler: 'http:http://127.0.0.1:{port}/'}}]\n"
        )
        bed, urls = up("one.yaml", cwd=tmp_path)
        url, pid = urls["a"], bed.nodes()["a"]
        base = waves.resident_bytes(pid)
        peaks, rests = [], []
        end_s = time.monotonic() + soak_s
        while time.monotonic() < end_s or len(peaks) < 8:
            waves.forget_peak(pid)
            key = b"wave-%d" % len(peaks) if len(peaks) % 2 else None
            bodies = [b'{"payload":%d}' % n for n in range(AT_ONCE)]
            statuses = runner.run(waves.send(url, bodies, key=key))
            assert set(statuses) <= {200, 429}, "late ones meet answers that fill what may be held"
            assert statuses.total() == AT_ONCE
            peaks.append(waves.resident_bytes(pid, "VmHWM") - base)
            rests.append(waves.resident_bytes(pid) - base)
        state = ask(f"{url}/state")[1]
        runner.run(close())
    quarter = max(4, len(rests) // 4)
    # The least of each: what is free is given back now and then, what leaks never.
    early, late = min(rests[:quarter]), min(rests[-quarter:])
    shown = f"peak +{max(peaks) / MIB:.0f}, at rest +{early / MIB:.0f}, then +{late / MIB:.0f} MiB"
    print(f"{len(peaks)} waves of {under_way / MIB:.0f} MiB: {shown}")  # noqa: T201
    assert max(peaks) <= 2 * under_way + waves.MARGIN_BYTES
    assert late - early <= GROWTH_BYTES
    assert state["held_bytes"] == state["kept_bytes"] <= HELD
    assert bed.end() == 0
