"""Passwords of Redis stay where they were put: no command line, log, state or error has them."""

import json
from pathlib import Path

import pytest

from support.ports import free_ports
from support.waiting import until

SECRET = "s3cret-of-tests"  # noqa: S105
ONE = "name: one\nclusters: [{id: a, servers: 1}]\n"


@pytest.fixture
def nobody():
    """Where no Redis is."""
    return f"127.0.0.1:{free_ports(1)[0]}"


def command_lines(running):
    """Of a command and all that it has started, as the kernel has them."""
    pids = [running.process.pid, *running.look()]
    return [Path(f"/proc/{pid}/cmdline").read_bytes().decode() for pid in pids]


def test_a_testbed_hands_it_on_unseen(up, ask, nobody, tmp_path):
    """To nodes that say that the Redis is away, and where it should be."""
    (tmp_path / "one.yaml").write_text(ONE)
    (tmp_path / "redis-url").write_text(f"redis://{nobody}/0?password={SECRET}\n")
    bed, urls = up("one.yaml", "--redis-url-file", "redis-url", cwd=tmp_path)
    log = Path(json.loads(bed.stdout)["logs"]["a"])
    until(lambda: "the store of the configuration is away" in log.read_text())
    assert nobody in log.read_text()
    lines = command_lines(bed)
    assert "--redis-url-file" in "".join(lines)
    said = [ask(f"{urls['a']}{path}")[1] for path in ("/state", "/federation", "/admin/config")]
    topology = (log.parent / "topology.yaml").read_text()
    seen = [*lines, log.read_text(), json.dumps(said), topology, bed.stdout, bed.stderr]
    assert not [one for one in seen if SECRET in one]
    bed.end()
    assert SECRET not in bed.stderr


def test_a_member_does_not_tell_it_either(spillover, nobody, tmp_path):
    (tmp_path / "jobs.py").write_text(
        "def serve(partition, epoch, stop_event): stop_event.wait()\n"
    )
    (tmp_path / "redis-url").write_text(f"rediss://user:{SECRET}@{nobody}/0")
    member = spillover(
        *("lease", "run", "--redis-url-file", "redis-url", "--group", "g", "--node", "n"),
        *("--partitions", "1", "--handler", "python:jobs:serve"),
        cwd=tmp_path,
    )
    until(lambda: "redis_down" in member.stdout)
    lines = command_lines(member)
    assert nobody in member.stdout
    assert not [one for one in (*lines, member.stdout, member.stderr) if SECRET in one]
