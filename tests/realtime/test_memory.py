"""A node's memory as the system sees it, under waves of large answers and floods of payloads."""

import asyncio

import uvloop

MIB = 2**20
AT_ONCE, WAVES, ANSWER = 20, 2, 8 * MIB
PAYLOADS, HELD = 100, 16 * MIB
KEPT = 32 * MIB
"""Of answers that their clients have."""


def node_of(tmp_path, up, **fields):
    """A testbed of one cluster: its url and its node's pid."""
    shown = ", ".join(f"{name}: {value}" for name, value in fields.items())
    (tmp_path / "one.yaml").write_text(
        f"payload_limit_bytes: {2 * MIB}\nclusters: [{{id: a, {shown}}}]\n"
    )
    bed, urls = up("one.yaml", cwd=tmp_path)
    return bed, urls["a"], bed.nodes()["a"]


def test_waves_of_large_answers_take_twice_what_is_under_way(tmp_path, up, ask, until, waves):
    """Twenty answers of 8 MiB at once, twice. No wave leaves more behind than the few answers
    that are kept, and nothing moves at the end."""
    under_way = AT_ONCE * ANSWER
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        port, close = runner.run(waves.serve(ANSWER))
        handler = f"'http:http://127.0.0.1:{port}/'"
        bed, url, pid = node_of(
            tmp_path, up, servers=AT_ONCE, handler=handler, held_limit_bytes=4 * under_way
        )
        runner.run(waves.send(url, [b'{"payload":0}']))
        base = waves.resident_bytes(pid)
        peaks = []
        for _ in range(WAVES):
            waves.forget_peak(pid)
            bodies = [b'{"payload":%d}' % n for n in range(AT_ONCE)]
            assert runner.run(waves.send(url, bodies)) == {200: AT_ONCE}
            peaks.append(waves.resident_bytes(pid, "VmHWM") - base)
            # Free memory is given back within a second or two, see `live/allocator`.
            until(lambda: waves.resident_bytes(pid) - base <= KEPT + waves.MARGIN_BYTES)
        state = ask(f"{url}/state")[1]
        runner.run(close())
    assert max(peaks) <= 2 * under_way + waves.MARGIN_BYTES, peaks
    assert state["held_bytes"] == state["kept_bytes"] <= KEPT
    assert bed.end() == 0


def test_a_flood_of_payloads_takes_what_may_be_held(tmp_path, up, ask, waves):
    """A hundred of a MiB while one server is busy: 14 MiB of them are taken and answered, the
    others refused, twice over; the limit bounds the memory of the second time as well."""
    bed, url, pid = node_of(tmp_path, up, servers=1, held_limit_bytes=HELD)
    text = b"x" * MIB
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(waves.send(url, [b'{"payload":{"service_ms":0}}']))
        base = waves.resident_bytes(pid)
        for _ in range(2):
            waves.forget_peak(pid)
            bodies = [
                b'{"payload":{"service_ms":%d,"x":"%b"}}' % (2000 if n == 0 else 1, text)
                for n in range(PAYLOADS)
            ]
            done = ask(f"{url}/state")[1]["ledger"]["home"]["done"]
            statuses = runner.run(waves.send(url, bodies))
            assert set(statuses) == {200, 429}
            assert statuses[200] >= 13
            peak = waves.resident_bytes(pid, "VmHWM") - base
            assert peak <= 2 * HELD + PAYLOADS * 256 * 1024 + waves.MARGIN_BYTES
            state = ask(f"{url}/state")[1]
            assert state["ledger"]["home"]["done"] - done == statuses[200]
            assert state["ledger"]["home"]["accepted"] == state["ledger"]["home"]["done"]
            assert state["held_bytes"] == state["kept_bytes"]
    assert bed.end() == 0
