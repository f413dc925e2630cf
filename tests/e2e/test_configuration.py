"""A federation of real processes whose configuration changes under load, as operators change it.

A cluster comes and goes for SPILLOVER_ROUNDS_S seconds: half of SPILLOVER_SOAK_S if only that is
set, so that `make soak` does so for five minutes.
"""

from __future__ import annotations

import os
import signal
import time

import pytest
import yaml

from spillover.cli import main
from support.waiting import slack

THREE = """
name: three
clusters: [{id: a, servers: 5}, {id: b, servers: 5}, {id: c, servers: 5}]
links: [{between: [a, b], delay_ms: 35}, {between: [b, c], delay_ms: 35}, {between: [a, c]}]
"""

NEWCOMER_USED_S = 2.0
"""From when the newcomer answers until overflow goes there, at the latest."""

SOAK_S = float(os.environ.get("SPILLOVER_SOAK_S", "8"))
ROUNDS_S = float(os.environ.get("SPILLOVER_ROUNDS_S", SOAK_S / 2))
LAST_S_MAX = 60.0
"""The load goes on until the last round is over, which has begun in time. At least two are."""


@pytest.fixture
def config(capsys):
    """The command: its exit status, and what it said on either stream."""

    def run(*words):
        capsys.readouterr()
        return main(["config", *map(str, words)]), *capsys.readouterr()

    return run


@pytest.fixture
def fields_of(config):
    def fields(url):
        status, out, err = config("get", url)
        assert status == 0, err
        return yaml.safe_load(out)

    return fields


@pytest.fixture
def set_to(config, tmp_path):
    def change(url, told, *options):
        path = tmp_path / "next.yaml"
        path.write_text(yaml.safe_dump(told))
        status, _, err = config("set", url, path, *options)
        assert status == 0, err

    return change


def with_f(told, port):
    """With one more cluster, linked to two, and many servers."""
    clusters = [*told["clusters"], {"id": "f", "servers": 20, "url": f"http://127.0.0.1:{port}"}]
    links = [*told["links"], *({"between": [end, "f"], "delay_ms": 5} for end in "ab")]
    return told | {"clusters": clusters, "links": links}


@pytest.mark.timeout(2 * ROUNDS_S + 300)
def test_a_cluster_comes_and_goes_under_load_and_nothing_is_lost(
    up, generate, ask, until, is_balanced, free_ports, fields_of, set_to, tmp_path
):
    """Again and again: overflow uses the newcomer soon, and every request ends well. A node that is
    killed comes back into a configuration that it has not heard of."""
    (port,) = free_ports(1)
    (tmp_path / "three.yaml").write_text(THREE)
    bed, urls = up("three.yaml", "--seed", "1", cwd=tmp_path)
    f = f"http://127.0.0.1:{port}"
    load = generate(
        {c: urls[c] for c in "ab"}, "--workload", "poisson", "--rate", "260",
        "--duration-s", str(ROUNDS_S + LAST_S_MAX), "--seed", "1",
    )  # fmt: skip
    small = fields_of(urls["c"])
    began_s = time.monotonic()
    rounds, used_s = 0, []
    while rounds < 2 or time.monotonic() < began_s + ROUNDS_S:
        version = fields_of(urls["c"]).get("version", 0)
        set_to(urls["c"], with_f(small, port) | {"version": version})
        until(lambda: _answers(ask, f), 20.0)
        there_s = time.monotonic()
        until(lambda: ask(f"{f}/state")[1]["ledger"]["foreign"]["received"] > 0, 20.0)
        used_s.append(time.monotonic() - there_s)
        set_to(urls["b"], small, "--if-version", version + 1)
        until(lambda: not _answers(ask, f), 30.0)
        rounds += 1
    result = load.result_so_far()
    assert result["outcomes"]["ok"] == result["sent"], result["outcomes"]
    assert max(used_s) <= NEWCOMER_USED_S * slack(), used_s
    for url in urls.values():
        until(lambda url=url: is_balanced(ask(f"{url}/state")[1]))
        state = ask(f"{url}/state")[1]
        assert state["configuration"]["version"] == 2 * rounds
        assert "f" not in [neighbor["id"] for neighbor in state["neighbors"]]
    assert "cluster f is added" in bed.stderr
    assert "cluster f is removed" in bed.stderr
    bed.look()
    (directory,) = bed.temporary_directories()
    until(lambda: f"version: {2 * rounds}" in (directory / "topology.yaml").read_text())
    c, told = urls["c"], fields_of(urls["a"])
    os.kill(bed.nodes()["c"], signal.SIGKILL)
    set_to(urls["a"], told | {"max_hops": 3}, "--if-version", 2 * rounds)
    newest = 2 * rounds + 1
    until(
        lambda: _answers(ask, c) and ask(f"{c}/state")[1]["configuration"]["version"] == newest,
        20.0,
    )
    assert fields_of(c)["max_hops"] == 3


def _answers(ask, url):
    try:
        return ask(f"{url}/state")[0] == 200
    except OSError:
        return False
