"""What only a node can say of configurations: which counts, and in one line what it refuses, with
the name of the file and exit status 2."""

import io
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from spillover.commandline.output import take_all_characters
from spillover.inputs.topology_file import dump_topology
from support.waiting import slack


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("name: plain", "name: other", "name: expected federation 'plain', got 'other'"),
        ("id: a", "id: z", "clusters: expected cluster a, whose node is asked"),
        ("gossip_period_ms: 50", "gossip_period_ms: 99", "gossip_period_ms: "),
    ],
)
def test_a_file_that_is_not_for_this_node(running, nodes, tmp_path, refused, before, after, words):
    topology = nodes.topology_of("a")
    text = dump_topology(topology)
    for name, value in (("name", "plain"), ("gossip_period_ms", "50")):
        text = (
            "".join(line for line in text.splitlines(True) if not line.startswith(f"{name}:"))
            + f"{name}: {topology.name if name == 'name' else value}\n"
        )
    before = before.replace("plain", topology.name)
    assert before in text
    file = tmp_path / "wrong.yaml"
    file.write_text(text.replace(before, after))
    with running(topology) as run:
        said = refused("config", "set", run.urls["a"], file)
    assert said.startswith(f"{file}: {words.replace('plain', topology.name)}")


def test_what_a_file_need_not_say_again_is_no_difference(running, nodes, tmp_path, told):
    """Urls and how much a node holds are the node's own; a change is told beside nothing else."""
    topology = nodes.topology_of("a")
    file = tmp_path / "same.yaml"
    text = "".join(
        line
        for line in dump_topology(topology).splitlines(True)
        if "url" not in line and "held_limit_bytes" not in line
    )
    with running(topology) as run:
        for written, said in (
            (text, "nothing differs from version 0\n"),
            (text.replace("queue_limit: ", "queue_limit: 1"), None),
        ):
            file.write_text(written)
            status, out, _ = told("config", "diff", run.urls["a"], file)
            assert (status, out.count("\n")) == (0, 1)
            assert (out == said) if said else ("queue_limit" in out)


OF_THIS_FEDERATION = "name: test\ngossip_period_ms: 20\npolicy: two-choice\n"


def until_busy(client, url):
    """Wait for a request that runs there."""
    end_s = time.monotonic() + 20.0
    while not client.get(f"{url}/state").json()["busy"]:
        assert time.monotonic() < end_s


def test_a_change_is_taken_back(running, nodes, tmp_path, refused, told):
    """What is seldom meant is told, and done. The history says what counted and what it changed."""
    topology = nodes.topology_of("a", "b")
    file = tmp_path / "next.yaml"
    with running(topology) as run:
        url = run.urls["a"]
        assert "has known no earlier one" in refused("config", "set", url, "--rollback", status=1)
        file.write_text(dump_topology(topology).replace("servers: 1", "servers: 20"))
        status, _, err = told("config", "set", url, file)
        assert status == 0
        assert "unusual: cluster b servers: 1 to 20 (20 times as large)" in err
        conflict = refused("config", "set", url, file, status=1)
        assert "version_conflict" in conflict
        assert "--if-version" in conflict
        status, out, _ = told("config", "set", url, "--rollback")
        assert (status, "version 2 is taken, as version 0 was" in out) == (0, True)
        assert told("config", "set", url, "--rollback", "1")[0] == 0
        lines = told("config", "history", url)[1].splitlines()
        heads = [line.split(",")[0] for line in lines if not line.startswith(" ")]
        assert heads == ["version 3 of a", "version 2 of a", "version 1 of a", "version 0"]
        assert lines[1].startswith("  ~ cluster ")
        file.write_text("clusters: [{id: a, servers: 1, service_ms: 10}]\n" + OF_THIS_FEDERATION)
        assert "cluster a has no link any more" in told("config", "diff", url, file)[2]
        with httpx.Client(timeout=60.0) as client, ThreadPoolExecutor() as pool:
            work = {"payload": {"service_ms": 600 * slack()}}
            asked = pool.submit(client.post, f"{run.urls['b']}/requests", json=work)
            until_busy(client, run.urls["b"])
            status, _, err = told("config", "set", url, file, "--if-version", "3")
            assert status == 0
            assert "cluster b is removed, and has work: 1 running" in err
            assert asked.result().status_code == 200


def test_an_earlier_version_is_one_there_was_and_stands_alone(refused):
    at = ("config", "set", "http://127.0.0.1:1", "ring5")
    assert "--rollback" in refused(*at, "--rollback")
    assert "--if-version: expected a whole number from 0" in refused(*at, "--if-version", -1)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_is_printed_to_a_file_is_utf_8(monkeypatch, encoding):
    """And a terminal shows what it lacks by its code."""
    codes = "東é".encode(encoding, "backslashreplace")
    for is_terminal, shown in ((False, "東é".encode()), (True, codes)):
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
        out.isatty = lambda is_terminal=is_terminal: is_terminal
        monkeypatch.setattr(sys, "stdout", out)
        take_all_characters()
        sys.stdout.write("東é")
        assert out.buffer.getvalue() == shown


def test_what_counts_is_told_as_one_object(running, nodes, told):
    """With the version that `set --if-version` asks for."""
    topology = nodes.topology_of("a")
    with running(topology) as run:
        found = json.loads(told("config", "get", run.urls["a"], "--json")[1])
    assert found["version"] == 0
    assert found["topology"].startswith(f"name: {topology.name}\n")
