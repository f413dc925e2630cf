"""The numbers that the load generator's documentation promises, and those that others rely on."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from spillover.live.http.client import HttpClient
from spillover_loadgen import clients_driver, driver, queue_driver, queue_record, results
from spillover_loadgen.cli import INTERRUPTED
from spillover_loadgen.clients_driver import ClientsLoad, Crowd
from spillover_loadgen.commands import make_parser
from spillover_loadgen.record import Outcome

README = Path(__file__).parents[2] / "loadgen" / "README.md"
IN_FLIGHT_MAX = inspect.signature(driver.run).parameters["in_flight_max"].default
SERVERS_KEEP_S = 5.0
"""For so long usual servers keep a connection that is idle."""


@pytest.fixture
def told():
    """The documentation in one line."""
    return " ".join(README.read_text(encoding="utf-8").split())


def test_numbers_are_as_documented(told):
    assert f"or {IN_FLIGHT_MAX:_} requests were waiting".replace("_", " ") in told
    assert f"left more than {results.KEPT_UP_LAG_MS:g} ms late" in told
    assert queue_record.KEPT_UP_LAG_MS == results.KEPT_UP_LAG_MS
    assert f"waits {driver.STOP_GRACE_S:g} s for answers" in told
    assert f"exits with {INTERRUPTED}" in told
    assert f"for {queue_driver.DRAIN_S_MAX:g} s at most" in told


def test_each_outcome_is_documented(told):
    assert set(re.findall(r"\| `(\w+)` \|", told)) == {outcome.value for outcome in Outcome}


def test_options_that_are_documented_exist(told):
    commands = make_parser()._actions[-1].choices.values()
    known = {name for command in commands for name in command._option_string_actions}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", told)) <= known


def test_each_request_in_flight_has_room_and_none_goes_to_a_connection_about_to_close():
    """And where a backlog overflows a connection is tried again, after 1 s and after 3 s."""
    load = ClientsLoad(
        nodes=("http://127.0.0.1:1",), clients=0, rule="baseline", virtual_nodes=1,
        duration_s=1.0, change_wait_s=0.0, rate_per_s=0.0, service_ms=1.0, seed=1,
    )  # fmt: skip
    url = load.nodes[0]
    crowd = Crowd(load)
    assert crowd._node(url) is crowd._node(url), "all clients share a node's connections"
    made = [driver._client_of(url, 123, ()), queue_driver._client_of(url, ()), crowd._node(url)]
    plain = HttpClient(url)
    assert [client.connections_max for client in made] == [123, plain.connections_max, 60_000]
    assert all(client._kept.limit.limit_s < SERVERS_KEEP_S for client in made)
    assert clients_driver.REQUEST_S >= 30.0
    assert all(client._opening._timeout_s > 3.0 for client in made[:2])
