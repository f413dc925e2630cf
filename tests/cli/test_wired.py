"""Options reach what commands start: nodes, producers, members, testbeds. All of them are made
here, and none is started.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from types import SimpleNamespace

import pytest

from spillover.cli import lease, main, node, queue, queue_work, up, up_queue
from spillover.inputs.topology_file import load_topology
from spillover.live.overflow.shell import NodeShell
from spillover.live.queue.consuming import consume
from spillover.model.errors import InputError
from spillover.testbed import ports, producers
from support.declared import read, words_of


def options_of(command, more=""):
    return SimpleNamespace(**read(words_of(command, more)))


@pytest.fixture
def tokens(tmp_path, capsys):
    """A file with one API token."""
    file = tmp_path / "tokens.yaml"
    assert main(["token", "new", "--role", "read", "--name", "n", "--append", str(file)]) == 0
    capsys.readouterr()
    return file


def given(serving):
    """What a coroutine that has not begun was called with."""
    told = dict(inspect.getcoroutinelocals(serving))
    serving.close()
    return told


# --- nodes ---------------------------------------------------------------------------------------

SITES = """\
name: two
clusters:
  - id: a
    servers: 1
    url: "http://127.0.0.1:1"
    peer_url: "http://127.0.0.1:2"
    handler: "proxy:http://127.0.0.1:9"
    proxy_url: "http://127.0.0.1:3"
  - {id: b, servers: 1, url: "http://127.0.0.1:4"}
links: [{between: [a, b]}]
"""


def node_of(tmp_path, more="", tracing=None):
    file = tmp_path / "two.yaml"
    file.write_text(SITES)
    topology = load_topology(str(file))
    options = options_of("node", more)
    options.topology = str(file)
    serving = node._serving(topology, topology.cluster("a"), ("h", 7), options, tracing)
    return given(serving), topology


def test_a_node_serves_where_its_cluster_has_urls(tmp_path):
    told, topology = node_of(tmp_path)
    assert (told["topology"], told["cluster_id"]) == (topology, "a")
    assert (told["bind"], told["peer_bind"]) == (("h", 7), ("127.0.0.1", 2))
    assert told["proxy_bind"] == ("127.0.0.1", 3)
    assert (told["drain_timeout_s"], told["results_timeout_s"]) == (30.0, 5.0)
    assert (told["seed"], told["source"]) == (None, str(tmp_path / "two.yaml"))
    assert (told["testbed"], told["end_with_stdin"]) == (False, False)
    assert (told["config_from_peers"], told["make_shell"]) == (True, NodeShell)
    assert [told[name] for name in ("store", "credentials", "token_files")] == [None] * 3
    assert told["allowed_origins"] == frozenset()


def test_a_node_is_as_it_was_asked_for(tmp_path, tokens):
    words = (
        "--peer-bind h:2 --proxy-bind h:3 --seed 4 --drain-timeout-s 8 --results-timeout-s 3 "
        "--testbed --end-with-stdin --config-from operators --allow-origin http://x "
        f"--config-redis redis://127.0.0.1:1/0 --tokens {tokens}"
    )
    tracing = SimpleNamespace(make_shell=object())
    told, _ = node_of(tmp_path, words, tracing)
    assert (told["peer_bind"], told["proxy_bind"]) == (("h", 2), ("h", 3))
    assert (told["seed"], told["drain_timeout_s"], told["results_timeout_s"]) == (4, 8.0, 3.0)
    assert (told["testbed"], told["end_with_stdin"]) == (True, True)
    assert (told["config_from_peers"], told["make_shell"]) == (False, tracing.make_shell)
    assert told["allowed_origins"] == {"http://x"}
    assert told["store"] is not None
    assert [token.name for token in told["token_files"].tokens] == ["n"]


def test_a_door_of_a_service_is_only_where_there_is_one(tmp_path):
    """And clients are served where it is said: by the option, else by the cluster's url."""
    file = tmp_path / "two.yaml"
    file.write_text(SITES.replace(', url: "http://127.0.0.1:4"', ""))
    a, b = load_topology(str(file)).clusters
    assert node._bind_of(options_of("node"), a) == ("127.0.0.1", 1)
    assert node._bind_of(options_of("node", "--bind h:5 --proxy-bind h:3"), a) == ("h", 5)
    assert node._bind_of(options_of("node", "--bind h:5"), b) == ("h", 5)
    with pytest.raises(InputError, match="expected HOST:PORT, since cluster b has no url"):
        node._bind_of(options_of("node"), b)
    with pytest.raises(InputError, match="expected a proxy: handler, cluster b has sleep"):
        node._bind_of(options_of("node", "--bind h:5 --proxy-bind h:3"), b)


# --- producers of the queue ----------------------------------------------------------------------


def test_a_producer_serves_as_it_was_asked_for(tmp_path, tokens):
    lines = []
    words = (
        "--id p1 --buffers 7 --bind h:2 --object-limit-bytes 9 --drain-timeout-s 8 --end-with-stdin"
    )
    options = SimpleNamespace(
        **read(["queue", *words.split(), "--store", str(tmp_path), "--tokens", str(tokens)])
    )
    peers, shown = {"p2": "http://h:3"}, [(b"authorization", b"x")]
    told = given(queue._serving(options, peers, "http://me", shown, None, lines.append))
    assert (told["settings"].id, told["settings"].buffers) == ("p1", 7)
    assert (told["peers"], told["bind"], told["url"]) == (peers, ("h", 2), "http://me")
    assert (told["object_limit_bytes"], told["drain_timeout_s"]) == (9, 8.0)
    assert (told["end_with_stdin"], told["shown"]) == (True, shown)
    assert [token.name for token in told["token_files"].tokens] == ["n"]
    told["on_ready"]("http://there")
    told["store"].close()
    plain = SimpleNamespace(**read(["queue", "--id", "p2"]))
    told = given(queue._serving(plain, {}, None, (), None, lines.append))
    told["on_ready"]("http://here")
    assert [told[name] for name in ("store", "token_files", "url", "certified")] == [None] * 4
    assert (told["end_with_stdin"], told["object_limit_bytes"]) == (False, 16_777_216)
    assert [json.loads(line) for line in lines] == [
        {"ready": True, "producer": "p1", "durable": True, "url": "http://there"},
        {"ready": True, "producer": "p2", "durable": False, "url": "http://here"},
    ]


def test_objects_are_asked_for_as_it_was_said(tmp_path):
    (tmp_path / "secret").write_text("s3cret\n")
    plain = queue_work._consumer_of(options_of("queue work"))
    assert (plain._urls, plain._settings.max_hops, plain._headers) == (("http://h:1",), 3, ())
    words = f"--max-hops 5 --at-once 2 --access uniform --token-file {tmp_path / 'secret'}"
    asked = queue_work._consumer_of(options_of("queue work", f"--producer http://h:2 {words}"))
    assert asked._urls == ("http://h:1", "http://h:2")
    assert (plain._settings.learns, asked._settings.learns) == (True, False)
    assert (asked._settings.max_hops, asked._settings.at_once) == (5, 2)
    assert b"s3cret" in dict(asked._headers)[b"authorization"]
    for more, option in (("--max-hops 0", "--max-hops"), ("--producer x", "--producer")):
        with pytest.raises(InputError, match=f"^{option}: expected "):
            queue_work._consumer_of(options_of("queue work", more))


def test_work_is_as_it_was_asked_for(monkeypatch, tmp_path):
    """Of a deadline in seconds; a handler that cannot be is named as its option."""
    (tmp_path / "working_here.py").write_text("def run(payload): ...\n")
    monkeypatch.syspath_prepend(tmp_path)

    async def made(handler):
        options = options_of("queue work", "--deadline-ms 1500 --at-once 2")
        options.handler = handler
        work = queue_work._work_of(consume(["http://127.0.0.1:1"]), options)
        await work.close()
        return work

    assert asyncio.run(made("python:working_here:run"))._deadline_s == 1.5
    with pytest.raises(InputError, match=r"^--handler: expected "):
        asyncio.run(made("python:working_here:none"))


# --- members of a lease group --------------------------------------------------------------------


def test_a_member_is_as_it_was_asked_for(tmp_path, monkeypatch):
    (tmp_path / "serving_here.py").write_text("def serve(partition, epoch, stop_event): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    lines = []
    words = "--balance load --seed 3 --max-lease-ms 190000 --max-progress-ms 4000"
    options = options_of("lease run", words)
    options.handler = "python:serving_here:serve"
    member = lease._member_of(options, "redis://127.0.0.1:1/0", lines.append)
    assert (member.redis.url, member.group, member.node) == ("redis://127.0.0.1:1/0", "g", "n")
    settings = member.settings
    assert (member.rule, settings.balance, settings.partitions) == ("guarded", "load", 4)
    assert member.times.max_lease_ms == 190_000.0
    member.events.tell("serving", url="http://here")
    said = json.loads(lines[0])
    assert (said["event"], said["url"]) == ("serving", "http://here")
    options.rule, options.balance, options.max_progress_ms = "blog", "count", None
    assert lease._member_of(options, "redis://127.0.0.1:1/0", lines.append).rule == "blog"


# --- testbeds ------------------------------------------------------------------------------------


def test_a_testbed_is_as_it_was_asked_for():
    topology = load_topology("ring5")
    plain = up._bed_of(topology, options_of("up"))
    assert (plain.topology, plain._source, plain._seed) == (topology, "ring5", None)
    assert (plain.drain_timeout_s, plain._results_timeout_s) == (30.0, 5.0)
    assert (plain.restarts, plain._first_port) == (True, ports.FIRST_PORT)
    assert (plain._otel, plain._config_redis, plain.certified.is_wanted) == (False, None, False)
    assert (plain._allowed_origins, plain._tokens) == ([], [])
    words = (
        "t --seed 3 --drain-timeout-s 7 --results-timeout-s 2 --no-restart --port 9000 --otel "
        "--config-redis redis://h --allow-origin * --tokens f --tls"
    )
    bed = up._bed_of(topology, options_of("up", words))
    assert (bed._source, bed._seed, bed.drain_timeout_s) == ("t", 3, 7.0)
    assert (bed._results_timeout_s, bed.restarts, bed._first_port) == (2.0, False, 9000)
    assert (bed._otel, bed._config_redis, bed.certified.is_wanted) == (True, "redis://h", True)
    assert (bed._allowed_origins, bed._tokens) == (["*"], ["f"])


URLS = """\
name: two
clusters:
  - {id: a, servers: 1, url: "http://127.0.0.1:9001"}
  - {id: b, servers: 1, url: "http://127.0.0.1:9003"}
links: [{between: [a, b]}]
"""


def test_what_runs_is_the_topology_with_what_is_said_instead(tmp_path):
    plain = up._topology_of(options_of("up", "ring5 --port 9000"))
    assert plain == load_topology("ring5")
    other = up._topology_of(options_of("up", "ring5 --policy isolated --shadow adaptive"))
    assert (other.name, other.policy, other.shadow) == ("ring5", "isolated", "adaptive")
    file = tmp_path / "given.yaml"
    file.write_text(URLS)
    assert up._topology_of(options_of("up", str(file))).cluster("a").url.endswith(":9001")
    with pytest.raises(InputError, match="a url for every cluster"):
        up._topology_of(options_of("up", f"{file} --port 9000"))
    file.write_text(URLS.replace(', url: "http://127.0.0.1:9003"', ""))
    assert up._topology_of(options_of("up", f"{file} --port 9000")).cluster("b").url is None


def test_producers_of_a_testbed_are_as_they_were_asked_for(tmp_path):
    plain = up_queue._bed_of(options_of("up", "--queue 2"), None)
    assert (plain._ids, plain._stores, plain._tokens) == (["p1", "p2"], None, [])
    assert (plain._first_port, plain.certified.is_wanted) == (producers.FIRST_PORT, False)
    assert plain._drain_timeout_s == 30.0
    words = f"--queue 1 --store {tmp_path} --drain-timeout-s 7 --port 9000 --tokens f"
    bed = up_queue._bed_of(options_of("up", words), up._certify)
    assert (bed._ids, bed._stores, bed._tokens) == (["p1"], tmp_path, ["f"])
    assert (bed._first_port, bed.certified.is_wanted, bed._drain_timeout_s) == (9000, True, 7.0)
