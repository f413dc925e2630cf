"""A federation of real processes whose configuration changes under load, as operators change it.

A cluster comes and goes for SPILLOVER_ROUNDS_S seconds: half of SPILLOVER_SOAK_S if only that is
set, so that `make soak` does so for five minutes.
"""

import json
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
import yaml

from spillover.cli import main
from support.waiting import slack

NEWCOMER_USED_S = 2.0
"""From when the newcomer answers until overflow goes there, at the latest."""

SOAK_S = float(os.environ.get("SPILLOVER_SOAK_S", "8"))
ROUNDS_S = float(os.environ.get("SPILLOVER_ROUNDS_S", SOAK_S / 2))
LAST_S_MAX = 300.0
"""The load goes on until the last round is over, which has begun in time: at least two are, which
take a minute and more on a busy machine. Then it is ended."""


@pytest.fixture
def config(capsys):
    """`config(*arguments)`: the command's exit status, and what it said on either stream. Within
    this process: its own start takes longer than all else."""

    def run(*arguments):
        status = main(["config", *map(str, arguments)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def fields_of(config, url):
    status, out, err = config("get", url)
    assert status == 0, err
    return yaml.safe_load(out)


def set_to(config, url, told, path, version):
    path.write_text(yaml.safe_dump(told))
    status, _, err = config("set", url, path, "--if-version", version)
    assert status == 0, err


RING = {
    "policy": "paper",
    "gossip_period_ms": 50,
    "clusters": [{"id": cluster, "servers": 5, "service_ms": 160} for cluster in "abcd"],
    "links": [{"between": list(pair), "delay_ms": 35} for pair in ("ab", "bc", "cd", "da")],
}
RATE = 65
"""A little more than a and b can do by themselves."""


def with_f(told, port):
    """The ring with one more cluster, linked to two, and many servers."""
    clusters = [*told["clusters"], {"id": "f", "servers": 20, "url": f"http://127.0.0.1:{port}"}]
    links = [*told["links"], *({"between": [end, "f"], "delay_ms": 5} for end in "ab")]
    return told | {"clusters": clusters, "links": links}


@pytest.mark.timeout(2 * ROUNDS_S + LAST_S_MAX)
def test_a_cluster_comes_and_goes_under_load_and_nothing_is_lost(
    config, up, generate, ask, until, is_balanced, free_ports, tmp_path
):
    """Again and again: overflow uses the newcomer soon, and every request ends well."""
    (port,) = free_ports(1)
    (tmp_path / "ring.yaml").write_text(json.dumps(RING))
    bed, urls = up("ring.yaml", "--seed", "1", cwd=tmp_path)
    f = f"http://127.0.0.1:{port}"
    load = generate(
        {c: urls[c] for c in "ab"}, "--workload", "poisson", "--rate", str(RATE),
        "--duration-s", str(ROUNDS_S + LAST_S_MAX), "--seed", "1",
    )  # fmt: skip
    small = fields_of(config, urls["c"])
    path = tmp_path / "next.yaml"

    def all_have(version):
        states = (ask(f"{url}/state")[1] for url in urls.values())
        return all(state["configuration"]["version"] == version for state in states)

    def is_overflowing():
        states = (ask(f"{urls[c]}/state")[1] for c in "cd")
        return all(state["ledger"]["foreign"]["received"] > 0 for state in states)

    until(is_overflowing)
    began_s = time.monotonic()
    rounds, used_s = 0, []
    while rounds < 2 or time.monotonic() < began_s + ROUNDS_S:
        set_to(config, urls["c"], with_f(small, port), path, 2 * rounds)
        until(lambda: _answers(ask, f), 20.0)
        there_s = time.monotonic()
        until(lambda: ask(f"{f}/state")[1]["ledger"]["foreign"]["received"] > 0, 20.0)
        used_s.append(time.monotonic() - there_s)
        until(partial(all_have, 2 * rounds + 1), 20.0)
        set_to(config, urls["d"], small, path, 2 * rounds + 1)
        until(lambda: not _answers(ask, f), 30.0)
        rounds += 1
        until(partial(all_have, 2 * rounds), 20.0)
    result = load.result_so_far()
    assert result["outcomes"]["ok"] == result["sent"], result["outcomes"]
    assert max(used_s) <= NEWCOMER_USED_S * slack(), used_s
    for url in urls.values():
        until(lambda url=url: is_balanced(ask(f"{url}/state")[1]))
        neighbors = ask(f"{url}/state")[1]["neighbors"]
        assert "f" not in [neighbor["id"] for neighbor in neighbors]
    assert "cluster f is added" in bed.stderr
    assert "cluster f is removed" in bed.stderr


def _answers(ask, url):
    try:
        return ask(f"{url}/state")[0] == 200
    except OSError:
        return False


def test_operators_read_compare_and_change_it(config, up, ask, until, tmp_path):
    """Each way in which it can go wrong has words and an exit status of its own, and a node that is
    killed comes back into a configuration that it has not heard of."""
    bed, urls = up("ring5")
    a, b = urls["a"], urls["b"]
    path = tmp_path / "next.yaml"
    told = fields_of(config, a)
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
    c, told = urls["c"], fields_of(config, a)
    os.kill(bed.nodes()["c"], signal.SIGKILL)
    set_to(config, a, told | {"max_hops": 3}, path, 1)
    until(lambda: _answers(ask, c) and ask(f"{c}/state")[1]["configuration"]["version"] == 2, 20.0)
    assert fields_of(config, c)["max_hops"] == 3


def _topology_file(bed):
    bed.look()
    (directory,) = bed.temporary_directories()
    return Path(directory) / "topology.yaml"
