"""Options reach what commands start: nodes, producers, members, testbeds. All of them are made
here, and none is started.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from spillover.cli import lease, main, node, queue, queue_work, up, up_queue
from spillover.inputs.topology_file import load_topology
from spillover.live.overflow.shell import NodeShell
from spillover.live.queue.consuming import consume
from spillover.model.errors import InputError
from spillover.testbed import ports, producers, supervisor
from spillover.testbed.node_process import NodeProcess
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
    assert (member.url, member.group, member.node) == ("redis://127.0.0.1:1/0", "g", "n")
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


def test_producers_of_a_testbed_are_as_they_were_asked_for(tmp_path):
    plain = up_queue._bed_of(options_of("up", "--queue 2"), None)
    assert (plain._ids, plain._stores, plain._tokens) == (["p1", "p2"], None, [])
    assert (plain._first_port, plain.certified.is_wanted) == (producers.FIRST_PORT, False)
    assert plain._drain_timeout_s == 30.0
    words = f"--queue 1 --store {tmp_path} --drain-timeout-s 7 --port 9000 --tokens f"
    bed = up_queue._bed_of(options_of("up", words), up._certify)
    assert (bed._ids, bed._stores, bed._tokens) == (["p1"], tmp_path, ["f"])
    assert (bed._first_port, bed.certified.is_wanted, bed._drain_timeout_s) == (9000, True, 7.0)


# --- what a testbed tells ------------------------------------------------------------------------


class Ended:
    """What the system says of a process."""

    def __init__(self, returncode):
        self.returncode = returncode


def node_process(cluster, returncode=None, *, log=Path("none.log"), **more):
    url = f"http://127.0.0.1:{9000 + ord(cluster)}"
    ended = NodeProcess(cluster, url, Ended(returncode), log, 0, 0.0)
    for name, value in more.items():
        setattr(ended, name, value)
    return ended


def bed_of(topology, *nodes, **options):
    """A testbed as it stands once these nodes run."""
    bed = supervisor.Testbed(topology, **options)
    bed.nodes = {one.cluster: one for one in nodes}
    return bed


def test_a_death_is_told_in_one_line(capsys, tmp_path):
    """How it died, what becomes of it, and what it said, if that has to do with it."""
    log = tmp_path / "a.log"
    log.write_text("it began\nno room left\n")
    killed = node_process("a", -9, log=log, starts_again_in_s=0.5)
    failed = node_process("a", 1, log=log)
    ended = node_process("a", 0, log=log)
    topology = load_topology("ring5")

    def told(one, *others, restart=True):
        up._tell_death(bed_of(topology, one, *others, restart=restart), one)
        line = capsys.readouterr().err
        assert line.endswith(f" (log {log})\n")
        return line.removesuffix(f" (log {log})\n").removeprefix("spillover: cluster a is gone ")

    other = node_process("b")
    assert told(killed, other) == "(killed by SIGKILL); the others go on; it starts again in 0.5 s"
    words = f"it stays down, after {len(up.DELAYS_S)} starts that came to nothing"
    assert told(failed, node_process("b", 1)) == (
        f"(exit status 1); {words}; its last words: no room left"
    )
    last = "its last words: no room left"
    assert told(failed, other, restart=False) == f"(exit status 1); the others go on; {last}"
    assert told(ended, other) == f"(exit status 0); the others go on; {last}"


def test_ends_and_returns_are_told_with_their_cluster(capsys):
    up._tell_ending(node_process("a"), "it waits")
    up._tell_return(node_process("b"))
    assert capsys.readouterr().err.splitlines() == [
        "spillover: cluster a is ending: it waits",
        "spillover: cluster b is back at http://127.0.0.1:9098 (log none.log)",
    ]


def test_who_types_something_is_told_what_comes_of_it(capsys):
    bed = bed_of(load_topology("ring5"), node_process("a"), node_process("b"))
    up._on_line(bed, "x")
    up._on_line(bed, "r")
    assert capsys.readouterr().err.splitlines() == [
        "spillover: expected r and Enter, to start dead nodes again, or Ctrl-C, to end",
        "spillover: all nodes run, none is started",
    ]


URLS = """\
name: two
clusters:
  - {id: a, servers: 1, url: "http://127.0.0.1:9001"%s}
  - {id: b, servers: 1, url: "http://127.0.0.1:9003"}
links: [{between: [a, b]}]
"""
DOOR = ', handler: "proxy:http://127.0.0.1:9", proxy_url: "http://127.0.0.1:9005"'
OPEN = """\
name: two
clusters: [{id: a, servers: 1}, {id: b, servers: 1}]
links: [{between: [a, b]}]
"""


@pytest.fixture
def told_start(tmp_path, capsys):
    """`told_start("--port 9001")`: (stdout, stderr lines) once all are ready."""

    def start(words="", *, door="", at_terminal=False, certify=None):
        given, wanted = tmp_path / "given.yaml", tmp_path / "wanted.yaml"
        given.write_text(URLS % door)
        wanted.write_text(OPEN)
        topology = load_topology(str(given))
        nodes = [node_process(one, log=Path(f"{one}.log")) for one in "ab"]
        bed = bed_of(topology, *nodes, certify=certify)
        options = options_of("up", words)
        up._tell_start(load_topology(str(wanted)), bed, options, at_terminal=at_terminal)
        out, err = capsys.readouterr()
        return out, err.splitlines()

    return start


SHIFTED = "spillover: port 9002 not free; shifted to 9001, 9003"


def test_where_clusters_are_is_told_with_what_to_try(told_start):
    out, lines = told_start("--port 9001")
    assert (out, lines) == (
        "",
        [
            SHIFTED,
            "cluster a  http://127.0.0.1:9001",
            "cluster b  http://127.0.0.1:9003",
            "their logs, until the end if that is clean:",
            "log of a  a.log",
            "log of b  b.log",
            "2 clusters are up; Ctrl-C ends them. Try:",
            "  http://127.0.0.1:9001/console  in a browser, live",
            "  spillover status http://127.0.0.1:9001",
            "  curl http://127.0.0.1:9001/requests -d '{\"payload\": {}}'",
        ],
    )
    _, lines = told_start("--port 9000", at_terminal=True)
    assert lines[0] == "spillover: ports 9000, 9002 not free; shifted to 9001, 9003"
    assert "2 clusters are up; Ctrl-C ends them; r and Enter starts dead ones again. Try:" in lines


def test_what_to_try_goes_through_the_door_of_the_service_where_there_is_one(told_start):
    _, lines = told_start("--port 9001 --tokens f", door=DOOR)
    assert "service a  http://127.0.0.1:9005" in lines
    assert "in SPILLOVER_TOKEN:" in next(line for line in lines if "are up" in line)
    assert lines[-1] == (
        '  curl -H "Proxy-Authorization: Bearer $SPILLOVER_TOKEN" http://127.0.0.1:9005'
    )


def test_programs_are_told_in_one_line_of_json(told_start):
    """Of a shift only where a port was wanted."""
    out, lines = told_start("--json")
    assert (lines, out.count("\n")) == ([], 1)
    assert json.loads(out) == {
        "ready": True,
        "clusters": {"a": "http://127.0.0.1:9001", "b": "http://127.0.0.1:9003"},
        "redis": None,
        "console": "http://127.0.0.1:9001/console",
        "logs": {"a": "a.log", "b": "b.log"},
    }
    out, lines = told_start("--json --port 9001", door=DOOR, certify=up._certify)
    assert lines == [SHIFTED]
    told = json.loads(out)
    assert told["proxies"] == {"a": "http://127.0.0.1:9005"}
    assert told["ca_file"].endswith("ca.crt")


def test_producers_are_told_with_what_to_try(capsys):
    bed = up_queue._bed_of(options_of("up", "--queue 2"), None)
    bed.urls = {"p1": "http://127.0.0.1:9001", "p2": "http://127.0.0.1:9002"}
    bed.logs = {"p1": Path("p1.log"), "p2": Path("p2.log")}
    up_queue._tell_ready(bed, as_json=True, has_tokens=False)
    out, err = capsys.readouterr()
    assert (err, json.loads(out)) == (
        "",
        {
            "ready": True,
            "producers": bed.urls,
            "console": "http://127.0.0.1:9001/console",
            "logs": {"p1": "p1.log", "p2": "p2.log"},
        },
    )
    up_queue._tell_ready(bed, as_json=False, has_tokens=False)
    out, err = capsys.readouterr()
    asked = '{"consumer": "me", "probe_id": "one"}'
    assert (out, err.splitlines()) == (
        "",
        [
            "producer p1  http://127.0.0.1:9001",
            "producer p2  http://127.0.0.1:9002",
            "2 producers are up; Ctrl-C ends them. Try:",
            "  http://127.0.0.1:9001/console  in a browser, live",
            "  spillover status http://127.0.0.1:9001",
            "  curl http://127.0.0.1:9001/objects -d 'an object'",
            f"  curl -i -L http://127.0.0.1:9001/take -d '{asked}'",
        ],
    )
    up_queue._tell_ready(bed, as_json=False, has_tokens=True)
    *_, put, take = capsys.readouterr().err.splitlines()
    shown = '-H "Authorization: Bearer $SPILLOVER_TOKEN"'
    assert put == f"  curl {shown} http://127.0.0.1:9001/objects -d 'an object'"
    assert take.startswith(f"  curl {shown} -i --location-trusted http://127.0.0.1:9001/take")
    up_queue._say_nothing_changes()
    assert capsys.readouterr() == (
        "",
        "spillover: SIGHUP changes nothing: producers have no files to read again\n",
    )


@pytest.mark.parametrize(
    ("words", "has_files"), [("", False), ("--tls", True), ("--tokens f", True)]
)
def test_a_hangup_has_files_read_again_where_there_are_some(words, has_files, capsys):
    bed = bed_of(load_topology("ring5"))
    (reread,) = up._rereads(options_of("up", words), bed)
    reread()
    said = "" if has_files else "spillover: SIGHUP changes nothing: nodes have no files to read"
    assert capsys.readouterr().err.startswith(said)
    assert (reread == bed.reread) is has_files
