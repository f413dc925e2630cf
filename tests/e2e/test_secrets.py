"""Secrets: of API tokens with `up --tokens`, a file that changes, and what logs say; and of Redis,
whose password stays where it was put: no command line, log, state or error has it."""

import json
import os
import signal
from pathlib import Path

from spillover.model.access import Role
from support.api_tokens import let_in
from support.ports import free_ports
from support.waiting import until

SECRET = "s3cret-of-tests"  # noqa: S105

ONE = "clusters: [{id: a, servers: 2, service_ms: 20}]\n"


def command_lines(running):
    """Of a command and all that it has started, as the kernel has them."""
    pids = [running.process.pid, *running.look()]
    return [Path(f"/proc/{pid}/cmdline").read_bytes().decode() for pid in pids]


def shown(file, name, tenant, role):
    return {"Authorization": f"Bearer {let_in(file, name, tenant, role)}"}


def logged(bed, cluster, words):
    """What stands behind these words in lines of the log."""
    log = Path(json.loads(bed.stdout)["logs"][cluster]).read_text("utf-8")
    return [line.partition(words)[2] for line in log.splitlines() if words in line]


def test_a_testbed_with_api_tokens_lets_in_those_of_the_file_as_it_is_now(up, ask, tmp_path):
    (tmp_path / "one.yaml").write_text(ONE)
    tokens = tmp_path / "tokens.yaml"
    shop = shown(tokens, "shop", "shop", Role.SUBMIT)
    nobody, file = f"127.0.0.1:{free_ports(1)[0]}", tmp_path / "redis-url"
    file.write_text(f"redis://{nobody}/0?password={SECRET}\n")
    options = ("--tokens", str(tokens), "--redis-url-file", str(file))
    bed, urls = up(str(tmp_path / "one.yaml"), *options)
    url = urls["a"]
    payload = {"payload": {"service_ms": 1}}
    assert ask(f"{url}/requests", payload)[0] == 401
    assert ask(f"{url}/requests", payload, shop)[0] == 200
    assert ask(f"{url}/state", None, shop)[0] == 403
    # A new one counts once the node is told to look.
    reader = shown(tokens, "reader", "", Role.READ)
    node = bed.nodes()["a"]
    os.kill(node, signal.SIGHUP)
    until(lambda: ask(f"{url}/state", None, reader)[0] == 200)
    is_handed_on_unseen(nobody, bed, url, reader, ask)
    # A bad file leaves them, and is told with its line.
    whole = tokens.read_text()
    tokens.write_text(whole + "- {name: third}\n")
    os.kill(node, signal.SIGHUP)
    words = "API tokens stay as they were: they cannot be read"
    until(lambda: logged(bed, "a", words))
    line = whole.count("\n") + 1
    assert f"{tokens}: line {line}, entry 3, sha256: expected" in logged(bed, "a", words)[0]
    assert ask(f"{url}/state", None, reader)[0] == 200
    # One that is taken out is not let in any more, also where it was before.
    tokens.write_text(whole.partition('- name: "reader"')[0])
    os.kill(node, signal.SIGHUP)
    until(lambda: ask(f"{url}/state", None, reader)[0] == 401)
    assert ask(f"{url}/requests", payload, shop)[0] == 200
    turned_away = logged(bed, "a", "turned away")
    assert "api_token=shop tenant=shop" in "".join(turned_away)
    secrets = [shop["Authorization"][7:], reader["Authorization"][7:]]
    everything = "".join(logged(bed, "a", " ")) + bed.stderr + "".join(bed.look().values())
    assert not [secret for secret in secrets if secret in everything]
    assert bed.end(signal.SIGTERM) == 0
    assert SECRET not in bed.stderr


def is_handed_on_unseen(nobody, bed, url, reader, ask):
    """To nodes that say that the Redis is away, and where it should be."""
    log = Path(bed.ready_line()["logs"]["a"])
    until(lambda: "the store of the configuration is away" in log.read_text())
    assert nobody in log.read_text()
    lines = command_lines(bed)
    assert "--redis-url-file" in "".join(lines)
    said = [
        ask(f"{url}{path}", None, reader) for path in ("/state", "/federation", "/admin/config")
    ]
    assert [status for status, _ in said] == [200] * 3
    topology = (log.parent / "topology.yaml").read_text()
    seen = [*lines, log.read_text(), json.dumps(said), topology, bed.stdout, bed.stderr]
    assert not [one for one in seen if SECRET in one]


def test_a_member_does_not_tell_it(spillover, tmp_path):
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
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
