"""A federation of real processes whose configuration changes under load, as operators change it.
What they are told of changes is in `tests/cli/test_told.py` and `test_config_refused.py`.

A cluster comes and goes for SPILLOVER_ROUNDS_S seconds: half of SPILLOVER_SOAK_S if only that is
set, so that `make soak` does so for five minutes.
"""

import json
import os
import time
from functools import partial

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
