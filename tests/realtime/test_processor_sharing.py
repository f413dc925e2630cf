"""Jobs that share one server of a pool, beside what theory says of them."""

from __future__ import annotations

import threading
import time

import pytest

from support.commands import ask


def test_processor_sharing_takes_the_time_that_theory_says(up, tmp_path):
    """Four jobs that come almost at once are done when all their work is,
    one that is alone after its own work."""
    path = tmp_path / "one.yaml"
    path.write_text(
        "name: one\nclusters: [{id: a, servers: [{id: big, rate: 2}],"
        " classes: [{id: c, servers: [big], tokens: 4}]}]\n"
    )
    _, urls = up(str(path), "--seed", "1")
    url = urls["a"]

    def service_ms(body):
        status, told = ask(f"{url}/requests", body)
        assert status == 200
        return told["timing_ms"]["service"]

    assert service_ms({"payload": {"service_ms": 100}}) == pytest.approx(50.0, abs=0.01)
    took, began_s = [], []

    def one():
        began_s.append(time.monotonic())
        took.append(service_ms({"payload": {"service_ms": 400}}))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    apart_ms = (max(began_s) - min(began_s)) * 1e3
    assert max(took) <= 800.0 + 1.0
    assert min(took) >= 800.0 - 4.0 * apart_ms - 20.0
