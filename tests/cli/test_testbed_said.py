"""What `spillover up` tells of a testbed: where all of it is, who dies and who is back, and what
becomes of what is typed. None is started here.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from spillover.cli import up, up_queue
from spillover.inputs.topology_file import load_topology
from spillover.live.overflow.ending import DRAINED, ENDING
from spillover.testbed import supervisor
from spillover.testbed.node_process import NodeProcess
from support.declared import read, words_of


def options_of(command, more=""):
    return SimpleNamespace(**read(words_of(command, more)))


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
    log.write_text(f"it began\n12:00:00 {ENDING}{DRAINED}\nno room left\n")
    last = "its last words: no room left"
    assert told(failed, other, restart=False) == f"(exit status 1); the others go on; {last}"
    drained = "it stays down: it was drained before"
    assert told(ended, other) == f"(exit status 0); the others go on; {drained}; {last}"


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
