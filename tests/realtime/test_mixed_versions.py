"""Nodes of different versions in one federation: the last release and this tree under load, an
upgrade and the way back while requests run. Versions that are too far apart are in
`tests/live/overflow/test_agreement.py`.

Nothing is tagged yet: RELEASE is the last commit before connections were shared. Once there are
tags, it is the newest one.
"""

import asyncio
import json
import signal
from functools import partial
from itertools import pairwise

import pytest

from support import releases
from support.faults import federation, reckoning
from support.faults import load as loads
from support.loop import until
from support.ports import free_ports

RELEASE = "f70fd3e6"
OLD = "ac"
"""Clusters that run it."""

HOLD_MS = 60.0
LOOK_S = 0.02
DRAIN_S = 30.0
"""For all that a node has in its hands: what still runs then is lost."""
UPGRADES_S = 100.0
"""There and back."""
CLUSTERS = {
    cluster: {"servers": servers, "service_ms": HOLD_MS, "handler": federation.ASYNC}
    for cluster, servers in {"a": 2, "b": 1, "c": 4, "d": 1}.items()
}
PAIR = {cluster: CLUSTERS[cluster] for cluster in "ab"}


@pytest.fixture(scope="module")
def release(require, tmp_path_factory):
    """`release(commit)`: its PYTHONPATH. The same one for all tests."""
    found = {}

    def release_of(commit):
        require(releases.has(commit), f"git, and commit {commit} in the repository's history")
        if commit not in found:
            found[commit] = releases.extracted(commit, tmp_path_factory.mktemp(commit))
        return found[commit]

    return release_of


class Bed(federation.Federation):
    """Nodes each of which runs this tree, or another one by its PYTHONPATH."""

    def run_from(self, cluster, tree):
        """From the next start on; None for this tree."""
        self.environment[cluster] = {} if tree is None else {"PYTHONPATH": tree}

    async def replace(self, cluster, tree):
        """As an operator does: SIGTERM, and a new life at the same address."""
        process = self.processes[cluster]
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, DRAIN_S + 5.0) == 0
        federation._let_go(process)
        self.run_from(cluster, tree)
        self.spawn(cluster)
        await self.healthy()

    def says(self, cluster, words):
        """The lines of its log with these words."""
        return [line for line in self.log(cluster).read_text().splitlines() if words in line]


@pytest.fixture
def run_bed(tmp_path):
    """`run_bed(main, trees, clusters)`: starts them all, awaits `main(bed)`, and ends them well."""

    def run(main, trees, clusters=CLUSTERS):
        links = [link for link in federation.RING_LINKS if set(link) <= set(clusters)]
        ports = free_ports(len(clusters))
        bed = Bed(directory=tmp_path / "bed", ports=ports, clusters=clusters, links=links)
        for cluster in clusters:
            bed.options[cluster] = ["--drain-timeout-s", str(DRAIN_S)]
            bed.run_from(cluster, trees.get(cluster))

        async def started():
            await bed.start()
            await main(bed)

        try:
            asyncio.run(started())
        finally:
            statuses = bed.close()
        assert not any(statuses.values()), statuses

    return run


async def under_load(bed, name, load, fault, limit_s=reckoning.HEALED_S):
    """The reckoning, with no wrongs; neighbors agree about everything."""
    send = partial(loads.send, name, bed.urls, load)
    found = await reckoning.under(bed, name, send, fault, limit_s)
    assert not found.wrongs, "\n".join(found.wrongs[:10])
    for cluster, state in (await bed.states()).items():
        assert not any(row.get("disagreement") for row in state["neighbors"]), state
        assert not state.get("turned_away"), state
        assert not bed.says(cluster, "not understood")
    return found


async def nothing():
    """No fault."""


def hops(found):
    """Who handed requests to whom."""
    return {pair for one in found.told for pair in pairwise(one.path)}


async def cancel_what_was_handed_on(bed, home):
    """Requests that run at a neighbor end at once, and both sides agree how."""
    names = [f"long-{number}-at-{home}" for number in range(12)]
    client = bed.client(home)
    headers = [(b"Prefer", b"respond-async")]
    try:
        for name in names:
            body = {"payload": {"work": name, "hold_ms": 20_000}, "id": name}
            posted = await client.request(
                "POST", "/requests", headers=headers, body=json.dumps(body).encode(), timeout_s=5.0
            )
            assert posted.status == 202
        states = [await bed.call(home, "GET", f"/requests/{name}") for name in names]
        away = {state["id"] for _, state in states if state["state"] == "forwarded"}
        assert away
        for name in names:
            status, state = await bed.call(home, "DELETE", f"/requests/{name}", timeout_s=5.0)
            assert (status, state["state"]) == (200, "cancelled"), name
            await bed.call(home, "GET", f"/requests/{name}")  # or its end waits for that
    finally:
        await client.close()

    async def all_rest():
        return all(map(reckoning._rests, (await bed.states()).values()))

    await until(all_rest, every_s=LOOK_S)


def test_the_last_release_beside_this_one(release, run_bed):
    """Every link joins an old node and a new one. A burst goes both ways over them: nothing is
    lost, nothing runs twice, ledgers balance all the while; cancels are confirmed, and each is
    shown by all."""

    async def main(bed):
        found = await under_load(bed, "beside", loads.Load(), nothing)
        assert found.ends(keyed=True) == found.ends(keyed=False) == {"done"}
        assert found.doubled(keyed=True) == 0
        between = {(one in OLD, other in OLD) for one, other in hops(found)}
        assert between == {(True, False), (False, True)}
        for home in "ab":
            await cancel_what_was_handed_on(bed, home)
        for cluster in bed.clusters:
            _, shown = await bed.call(cluster, "GET", "/federation", timeout_s=5.0)
            reached = {c for c, state in shown["clusters"].items() if "unreachable" not in state}
            assert reached == set(bed.clusters), cluster
            assert len(bed.says(cluster, "neighbor speaks")) == (0 if cluster in OLD else 2)
        assert found.states_seen

    run_bed(main, dict.fromkeys(OLD, release(RELEASE)))


def test_an_upgrade_and_the_way_back_under_load(release, run_bed):
    """Of one node, while a burst of its neighbor is everywhere: every request ends well, the first
    time it is sent."""
    tree = release(RELEASE)

    async def main(bed):
        async def upgrade():
            for now in (None, tree):
                await bed.replace("b", now)

        load = loads.Load(per_s=30.0, homes="a")
        found = await under_load(bed, "upgrade", load, upgrade, UPGRADES_S)
        assert not [one for one in found.told if one.outcome != "done" and not one.cancels]
        assert found.doubled(keyed=True) == 0
        assert {one.attempts for one in found.told} == {1}

    run_bed(main, dict.fromkeys("ab", tree), PAIR)
