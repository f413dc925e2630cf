"""A federation of real processes whose configuration changes under load, as operators change it.

A cluster comes and goes for SPILLOVER_ROUNDS_S seconds: half of SPILLOVER_SOAK_S if only that is
set, so that `make soak` does so for five minutes.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from support.waiting import slack

SPILLOVER = (sys.executable, "-m", "spillover")

NEWCOMER_USED_S = 2.0
"""From when the newcomer answers until overflow goes there, at the latest."""

SOAK_S = float(os.environ.get("SPILLOVER_SOAK_S", "8"))
ROUNDS_S = float(os.environ.get("SPILLOVER_ROUNDS_S", SOAK_S / 2))
LAST_S_MAX = 60.0
"""The load goes on until the last round is over, which has begun in time. At least two are."""


def config(*arguments):
    """The command: its exit status, and what it said on either stream."""
    command = [*SPILLOVER, "config", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return done.returncode, done.stdout, done.stderr


def fields_of(url):
    status, out, err = config("get", url)
    assert status == 0, err
    return yaml.safe_load(out)


def set_to(url, told, path, *options):
    path.write_text(yaml.safe_dump(told))
    return config("set", url, path, *options)


def with_f(told, port):
    """The ring with one more cluster, linked to two, and many servers."""
    clusters = [*told["clusters"], {"id": "f", "servers": 20, "url": f"http://127.0.0.1:{port}"}]
    links = [*told["links"], *({"between": [end, "f"], "delay_ms": 5} for end in "ab")]
    return told | {"clusters": clusters, "links": links}


@pytest.mark.timeout(2 * ROUNDS_S + 300)
def test_a_cluster_comes_and_goes_under_load_and_nothing_is_lost(
    up, generate, ask, until, is_balanced, free_ports, tmp_path
):
    """Again and again: overflow uses the newcomer soon, and every request ends well."""
    (port,) = free_ports(1)
    bed, urls = up("ring5", "--seed", "1")
    f = f"http://127.0.0.1:{port}"
    load = generate(
        {c: urls[c] for c in "ab"}, "--workload", "poisson", "--rate", "260",
        "--duration-s", str(ROUNDS_S + LAST_S_MAX), "--seed", "1",
    )  # fmt: skip
    small = fields_of(urls["c"])
    path = tmp_path / "next.yaml"
    began_s = time.monotonic()
    rounds, used_s = 0, []
    while rounds < 2 or time.monotonic() < began_s + ROUNDS_S:
        version = fields_of(urls["c"]).get("version", 0)
        assert set_to(urls["c"], with_f(small, port) | {"version": version}, path)[0] == 0
        until(lambda: _answers(ask, f), 20.0)
        there_s = time.monotonic()
        until(lambda: ask(f"{f}/state")[1]["ledger"]["foreign"]["received"] > 0, 20.0)
        used_s.append(time.monotonic() - there_s)
        status, _, err = set_to(urls["d"], small, path, "--if-version", version + 1)
        assert status == 0, err
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


def _answers(ask, url):
    try:
        return ask(f"{url}/state")[0] == 200
    except OSError:
        return False


def test_operators_read_compare_and_change_it(up, ask, until, tmp_path):
    """Each way in which it can go wrong has words and an exit status of its own, and a node that is
    killed comes back into a configuration that it has not heard of."""
    bed, urls = up("ring5")
    a, b = urls["a"], urls["b"]
    path = tmp_path / "next.yaml"
    told = fields_of(a)
    told["policy"] = "adaptive"
    told["links"][0]["delay_ms"] = 12
    told["clusters"][1]["queue_limit"] = 5
    path.write_text(yaml.safe_dump(told))
    status, out, _ = config("diff", a, path)
    assert (status, out.splitlines()) == (
        0,
        [
            "~ policy: paper to adaptive",
            "~ cluster b queue_limit: 10000 to 5",
            "~ link a-b: 35 ms to 12 ms",
        ],
    )
    status, out, _ = config("set", a, path)
    assert (status, out) == (
        0, "version 1 is taken; other nodes follow within a second or two\n"
    )  # fmt: skip
    until(lambda: ask(f"{urls['d']}/state")[1]["policy"] == "adaptive")
    until(lambda: ask(f"{b}/state")[1]["configuration"]["version"] == 1)
    status, _, err = config("set", b, path, "--if-version", 0)
    assert (status, err.count("\n")) == (1, 1)
    assert "version_conflict" in err
    told["clusters"][0]["handler"] = "spin"
    path.write_text(yaml.safe_dump(told | {"version": 1}))
    status, out, _ = config("diff", a, path)
    assert (status, "it would be refused: clusters[0].handler" in out) == (0, True)
    status, _, err = config("set", a, path)
    assert (status, "clusters[0].handler" in err) == (2, True)
    told = json.loads(config("get", a, "--json")[1])
    assert (told["version"], told["by"]) == (1, "a")
    assert config("diff", a, "ring5")[1].startswith("~ policy: adaptive to paper\n")
    until(lambda: "version: 1" in _topology_file(bed).read_text())
    c, told = urls["c"], fields_of(a)
    os.kill(bed.nodes()["c"], signal.SIGKILL)
    assert set_to(a, told | {"max_hops": 3}, path, "--if-version", 1)[0] == 0
    until(lambda: _answers(ask, c) and ask(f"{c}/state")[1]["configuration"]["version"] == 2, 20.0)
    assert fields_of(c)["max_hops"] == 3


def _topology_file(bed):
    bed.look()
    (directory,) = bed.temporary_directories()
    return Path(directory) / "topology.yaml"
