"""A node is killed or stopped in the middle of a burst: what its neighbors' clients see of it."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.waiting import slack

LINK_S = 0.1
"""More than a request or an answer is on a link: 35 ms, 6 ms of delivery, and a busy machine."""

HOT, DEAD, OTHER = "a", "b", "c"
"""The first burst is at a; b is its neighbor, and c the other neighbor of b."""


@pytest.fixture
def killed(up, generate, watch, until, held, tmp_path):
    """`killed(*options)`: bursts through ring5, and b killed while it holds what a handed to it.

    Gives the load generator's result, its records, the looks at a, b and c, and when b died.
    """

    def run_it(*options):
        bed, urls = up("ring5", "--seed", "1", "--no-restart")
        out = tmp_path / "records.jsonl"
        load = generate(
            urls, "--workload", "bursts", "--duration-s", "6", "--seed", "1",
            "--out", str(out), *options,
        )  # fmt: skip
        with watch({cluster: urls[cluster] for cluster in (HOT, DEAD, OTHER)}) as looks:
            until(lambda: _foreign(looks.latest(DEAD)) >= 4, what="a burst that spills over")
            killed_s = time.monotonic()
            os.kill(bed.nodes()[DEAD], signal.SIGKILL)
            result = load.result()
            until(
                lambda: not any(held(looks.latest(cluster)) for cluster in (HOT, OTHER)),
                2.0,
                "survivors that hold nothing",
            )
        records = [json.loads(line) for line in out.read_text().splitlines()]
        assert bed.end() == 0
        bed.nothing_left()
        return result, records, looks, killed_s

    return run_it


def _foreign(state):
    if state is None:
        return 0
    foreign = state["ledger"]["foreign"]
    return foreign["queued"] + foreign["running"] + foreign["handed_on"]


def _alive(state):
    return next(n["alive"] for n in state["neighbors"] if n["id"] == DEAD)


def _noticed_s(looks, cluster, killed_s):
    """When a look at this cluster first showed that b is dead."""
    return next(
        at_s for at_s, state in looks.history[cluster] if at_s > killed_s and not _alive(state)
    )


def _check_survivors(result, records, looks, killed_s, is_balanced):
    """What holds whether or not requests have keys."""
    assert result["sent"] == len(records) == sum(result["outcomes"].values())
    for cluster in (HOT, OTHER):
        assert _noticed_s(looks, cluster, killed_s) - killed_s < 1.0 * slack()
    for seen in looks.history.values():
        assert all(is_balanced(state) for _, state in seen)
    at_dead = result["per_cluster"][DEAD]["outcomes"]
    assert at_dead["unreachable"] > 0
    assert {outcome for outcome, count in at_dead.items() if count} <= {
        "ok", "unknown", "unreachable",
    }  # fmt: skip
    assert any(record["executed_cluster"] == DEAD for record in records)
    assert any(record["path"] and record["path"][-1] == "e" for record in records)


def test_without_keys_the_unknown_are_those_that_the_dead_node_had(killed, is_balanced):
    """Requests of living homes end ok or unknown, and no more are unknown than b can have had.

    Those are, seen from the last look at b before its end: what it held for neighbors; what it had
    answered less than LINK_S before, since answers may still have been on their way; and what a
    and c forwarded, to whomever, from LINK_S before that look until each knew that b was dead.
    A forward decided earlier had arrived at b by then, and one decided later did not go to b.
    """
    result, records, looks, killed_s = killed("--no-keys")
    _check_survivors(result, records, looks, killed_s, is_balanced)
    unknown = 0
    for cluster in "acde":
        outcomes = result["per_cluster"][cluster]["outcomes"]
        assert outcomes["ok"] + outcomes["unknown"] == result["per_cluster"][cluster]["sent"] > 0
        unknown += outcomes["unknown"]
    last_s, last = [look for look in looks.history[DEAD] if look[0] <= killed_s][-1]
    before_s = last_s - LINK_S
    answered = _ended(last) - _ended(looks.at(DEAD, before_s))
    forwarded = sum(
        looks.at(cluster, _noticed_s(looks, cluster, killed_s))["forwards"]
        - looks.at(cluster, before_s)["forwards"]
        for cluster in (HOT, OTHER)
    )
    assert 0 < unknown <= _foreign(last) + answered + forwarded


def _ended(state):
    foreign = state["ledger"]["foreign"]
    return foreign["answered"] + foreign["cancelled"]


FROZEN_YAML = """
clusters:
  - {id: a, servers: 2, queue_limit: 0}
  - {id: b, servers: 4}
links:
  - {between: [a, b], delay_ms: 5}
"""


def test_what_a_frozen_node_holds_is_given_up(up, until, ask, tmp_path):
    """A stopped process breaks no connection, nor does a cut cable: some 5 s after its last sign
    of life what it holds is done again where that has a key, else its client is told."""
    (tmp_path / "frozen.yaml").write_text(FROZEN_YAML)
    bed, urls = up("frozen.yaml", cwd=tmp_path)
    work = {"payload": {"service_ms": 1500}}
    with ThreadPoolExecutor(4) as clients:
        here = [clients.submit(ask, f"{urls['a']}/requests", work) for _ in range(2)]
        until(lambda: ask(f"{urls['a']}/state")[1]["busy"] == 2)
        unkeyed = clients.submit(ask, f"{urls['a']}/requests", work)
        keyed = clients.submit(ask, f"{urls['a']}/requests", work, {"Idempotency-Key": "k"})
        until(lambda: _foreign(ask(f"{urls['b']}/state")[1]) == 2)
        os.kill(bed.nodes()["b"], signal.SIGSTOP)
        stopped_s = time.monotonic()
        assert [client.result()[0] for client in here] == [200, 200]
        status, problem = unkeyed.result()
        assert (status, problem["reason"]) == (502, "outcome_unknown")
        assert 3.0 < time.monotonic() - stopped_s < 8.0 * slack()
        status, answer = keyed.result()
        assert (status, answer["path"]) == (200, ["a"])
        total_ms = answer["timing_ms"]["total"]
        assert total_ms == pytest.approx((time.monotonic() - stopped_s) * 1e3, abs=1000 * slack())
    os.kill(bed.nodes()["b"], signal.SIGCONT)
    until(lambda: _alive(ask(f"{urls['a']}/state")[1]), 3.0)
    assert bed.end() == 0
    bed.nothing_left()
