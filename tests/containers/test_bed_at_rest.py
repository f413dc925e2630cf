"""The compose testbed as it comes up: healthy soon, published on loopback only, light, and idle
when nobody asks anything of it; then the paper's bursts, beside the simulator's; a site that is cut
off, one that is stopped, and lease members. What faults do is tested with processes, in
tests/realtime.
"""

import json
import os
import sys
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import waiting

HEALTHY_S = 30.0
PARTITIONS = 32
LAYERS_BYTES_MAX = 90e6
MEMORY_BYTES_MAX = 500e6
IDLE_CORES_MAX = 0.1
IDLE_CORES_BUSY_MAX = 0.4
"""Where others run beside it: the same work takes longer then, and more of it is due at once."""
IDLE_FOR_S = 6.0

BURSTS = ("--workload", "bursts", "--seed", "1", "--duration-s", "12", "--json")
"""The first two of them."""
BURSTS_RATIO_MAX = 1.25
BURSTS_RATIO_LATE_MAX = 2.0
"""Where the load generator itself was late, which counts as waiting."""
BURSTS_RUNS = 3
"""Made again where it was: that says more of what runs beside it than of the sites."""

SPILLOVER = (sys.executable, "-m", "spillover")
LOADGEN = (sys.executable, "-m", "spillover_loadgen")


def test_it_is_soon_healthy_and_answers(beds, bed):
    """Each site at its port, and the federation seen through any of them."""
    beds.tell(f"healthy within {bed.healthy_s:.1f} s")
    assert bed.healthy_s < HEALTHY_S * waiting.slack()
    for cluster, url in bed.urls.items():
        body = json.dumps({"payload": {"service_ms": 5}}).encode()
        assert beds.get(f"{url}/requests", body)["cluster"] == cluster
    found = json.loads(beds.sh(*SPILLOVER, "status", bed.urls["a"], "--json"))
    assert sorted(found["clusters"]) == sorted(bed.urls)


def test_only_the_public_side_is_published_and_only_on_loopback(beds, bed):
    """What neighbors say to each other stays on their network."""
    for container in bed.containers():
        found = json.loads(beds.sh("docker", "inspect", container))[0]["NetworkSettings"]["Ports"]
        hosts = {each["HostIp"] for bindings in found.values() for each in bindings or ()}
        assert hosts == {"127.0.0.1"}
        assert not found.get("8081/tcp")
    with pytest.raises(urllib.error.HTTPError) as refused:
        beds.get(f"{bed.urls['a']}/peer/requests", b"{}")
    with refused.value as answer:
        assert answer.code == 404


def test_the_image_is_light_and_not_root(beds, bed):
    run = ("docker", "run", "--rm", "--read-only", "--network", "none")
    assert beds.sh(*run, "--entrypoint", "id", beds.IMAGE, "-u").strip() == "10001"
    lines = beds.sh("docker", "history", "--human=false", "--format", "{{.Size}}", beds.IMAGE)
    created = beds.sh(
        "docker", "history", "--no-trunc", "--format", "{{.CreatedBy}}", beds.IMAGE
    ).splitlines()
    ours = next(i for i, line in enumerate(created) if "groupadd" in line) + 1
    layers_bytes = sum(map(int, lines.split()[:ours]))
    beds.tell(f"layers above the base: {layers_bytes / 1e6:.1f} MB")
    assert layers_bytes <= LAYERS_BYTES_MAX


def test_prometheus_sees_every_node(beds, bed):
    url = f"{bed.prometheus_url}/api/v1/query?query=up%7Bjob%3D%22spillover%22%7D%3D%3D1"

    def nodes_up():
        found = beds.get(url)["data"]["result"]
        return {each["metric"]["instance"] for each in found}

    wanted = {f"{node}:8080" for node in beds.NODES}
    beds.until(lambda: nodes_up() == wanted, 30.0, "all nodes in Prometheus")


def used_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_idle_it_takes_little(beds, bed, require):
    """Five nodes and Redis; Prometheus's questions included, and what the processes of the health
    checks take not, since the engine starts those beside them."""
    services = [*beds.NODES, "redis"]
    pids = [bed.inspect(service)["State"]["Pid"] for service in services]
    require(Path(f"/proc/{pids[0]}/stat").exists(), "an engine on this machine")
    beds.until(bed.is_well, 30.0, "a federation that is well")
    slack = waiting.slack()
    before_s, began_s = sum(map(used_s, pids)), time.monotonic()
    over = time.monotonic() + IDLE_FOR_S
    beds.until(lambda: time.monotonic() > over, IDLE_FOR_S + 5.0)
    cores = (sum(map(used_s, pids)) - before_s) / (time.monotonic() - began_s)
    resident = [Path(f"/proc/{pid}/statm").read_text().split() for pid in pids]
    memory_bytes = sum(int(pages[1]) for pages in resident) * os.sysconf("SC_PAGE_SIZE")
    beds.tell(f"idle: {100 * cores:.1f} % of a core, {memory_bytes / 1e6:.0f} MB resident")
    assert cores < (IDLE_CORES_MAX if slack == 1.0 else IDLE_CORES_BUSY_MAX)
    assert memory_bytes < MEMORY_BYTES_MAX


def test_bursts_take_as_long_as_simulated(beds, bed):
    """The same schedule, from this machine at the published ports, and in the simulator."""
    targets = [f"--target={cluster}={url}" for cluster, url in bed.urls.items()]
    for _ in range(BURSTS_RUNS):
        beds.until(bed.is_well, 30.0, "a federation that is well")
        measured = json.loads(beds.sh(*LOADGEN, "run", *targets, *BURSTS, limit_s=90.0))
        if measured["kept_up"]:
            break
    command = (*SPILLOVER, "sim", "overflow", "--topology", "ring5", *BURSTS)
    simulated = json.loads(beds.sh(*command))
    mean_ms, simulated_ms = (each["system_time_ms"]["mean"] for each in (measured, simulated))
    ratio = mean_ms / simulated_ms
    lag_ms = measured["schedule_lag_ms"]["p99"]
    beds.tell(
        f"bursts: mean {mean_ms:.1f} ms, simulated {simulated_ms:.1f} ms, ratio {ratio:.3f}; "
        f"the load generator's own p99 lag {lag_ms:.1f} ms"
    )
    assert measured["sent"] == simulated["requests"] == measured["outcomes"]["ok"]
    assert ratio < (BURSTS_RATIO_MAX if measured["kept_up"] else BURSTS_RATIO_LATE_MAX)
    assert ratio > 1 / BURSTS_RATIO_MAX
    federation = beds.get(f"{bed.urls['a']}/federation")["clusters"]
    assert {state["ledger"]["home"]["away"] for state in federation.values()} == {0}


def test_a_site_that_is_cut_off_serves_its_own_and_comes_back(beds, bed):
    beds.until(bed.is_well, 30.0, "a federation that is well")
    bed.cut("node-b")
    try:
        beds.until(lambda: not bed.neighbors("a")["b"], 30.0, "notice")
        body = json.dumps({"payload": {"service_ms": 5}}).encode()
        assert beds.get(f"{bed.urls['b']}/requests", body)["path"] == ["b"]
    finally:
        bed.join("node-b")
    beds.until(bed.is_well, 60.0, "a federation that is well")


def test_a_container_that_is_stopped_ends_in_order(beds, bed):
    """It finishes what runs, and exits 0 long before the engine would kill it."""
    body = json.dumps({"payload": {"service_ms": 3000}}).encode()
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(beds.get, f"{bed.urls['e']}/requests", body)
        beds.until(lambda: bed.state("e")["busy"] == 1)
        bed.compose("stop", "node-e")
        assert asked.result()["cluster"] == "e"
    assert bed.inspect("node-e")["State"]["ExitCode"] == 0
    bed.start_again("node-e")
    beds.until(bed.is_well, 60.0, "a federation that is well")


def test_lease_members_share_and_hand_over(beds, bed):
    """All partitions of the compose file are held, by all three, then by the two that are left."""
    bed.compose("--profile", "leases", "up", "--detach", "--no-deps", *beds.MEMBERS)

    def shares(*members):
        return [len(beds.get(f"{bed.member_urls[one]}/state")["held"]) for one in members]

    def all_is_held(*members):
        try:
            held = shares(*members)
        except OSError:
            return False
        return sum(held) == PARTITIONS and min(held) > 0

    beds.until(lambda: all_is_held(*beds.MEMBERS), 90.0, "three that share")
    bed.compose("stop", "lease-1")
    assert bed.inspect("lease-1")["State"]["ExitCode"] == 0
    beds.until(lambda: all_is_held("lease-2", "lease-3"), 30.0, "two that have all")
