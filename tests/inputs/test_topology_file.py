"""Topology files: what is read, and the one line that every bad file gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spillover.inputs.builtin import BUILTIN_NAMES
from spillover.inputs.topology_file import load_topology
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Link, Topology
from spillover.policy.overflow.choosers import POLICY_NAMES

if TYPE_CHECKING:
    from pathlib import Path

CONTRACT_EXAMPLE = """
name: pair
policy: two-choice
gossip_period_ms: 50
max_hops: 16
clusters:
  - id: a
    servers: 5
    service_ms: 40
    handler: python:jobs.thumbnails:render
    workers: process
    memory_limit_bytes: 268435456
    kill_after_ms: 500
    delivery_ms: 6
    queue_limit: 10000
    held_limit_bytes: 536870912
    url: http://127.0.0.1:8101
  - {id: b, servers: 2, handler: "http:http://127.0.0.1:9000/run,http://[::1]:9000/run?x=1"}
links:
  - {between: [a, b], delay_ms: 35}
"""

POLICIES = ", ".join(POLICY_NAMES)

# Each case: the text of a file, then the whole message after "FILE: ".
BAD_FILES = {
    "empty": ("", "expected a mapping of fields, got nothing"),
    "a list": ("- a\n", "expected a mapping of fields, got a list"),
    "syntax": (
        "name: x\nclusters: [\n",
        "line 3: expected YAML, got: did not find expected node content",
    ),
    "control character": (
        "name: x\ny: \x07\n",
        "line 2: expected printable text, got character 0x07",
    ),
    "duplicate key": (
        "name: x\nmax_hops: 1\nmax_hops: 2\n",
        "line 3: expected each field once, got 'max_hops' twice",
    ),
    "merge key": (
        "clusters:\n- &c {id: a, servers: 1}\n- {<<: *c, id: b}\n",
        "line 3: expected the fields written out, got a merge key <<",
    ),
    "two documents": (
        "name: x\n---\nname: y\n",
        "line 2: expected a single document, got another one",
    ),
    "unsafe tag": (
        "name: !!python/object/apply:os.getcwd []\n",
        (
            "line 1: expected YAML without unusual tags, got "
            "'tag:yaml.org,2002:python/object/apply:os.getcwd'"
        ),
    ),
    "too deep": (
        "a: " + "[\n" * 5000,
        "line 32: expected at most 32 lists and mappings within each other, got more",
    ),
    "alias of itself": (
        "clusters: &c [*c]\n",
        "line 1: expected the alias of a value before it, got *c",
    ),
    "too many clusters": (
        "clusters:\n" + "- {}\n" * 1001,
        "clusters: expected at most 1000 clusters, got 1001",
    ),
    "no clusters": ("name: x\n", "clusters: expected a value, the field is missing"),
    "empty clusters": ("clusters: []\n", "clusters: expected at least one cluster, got none"),
    "missing servers": (
        "clusters: [{id: a}]\n",
        "clusters[0].servers: expected a value, the field is missing",
    ),
    "several faults": (
        "clusters: [{id: true, servers: true}, {}]\n",
        "clusters[0].id: expected an id, got true (put it in quotes) (and 3 more)",
    ),
    "misspelled and so missing": (
        "clusters: [{id: a, server: 1}]\n",
        "clusters[0].server: unknown field, did you mean servers?",
    ),
    "wrong before missing": (
        "clusters: [{servers: x}, {id: b, servers: 1}]\n",
        "clusters[0].servers: expected a whole number, a list or auto, got 'x' (and 1 more)",
    ),
    "octal or decimal": (
        "clusters: [{id: a, servers: 010}]\n",
        (
            "clusters[0].servers: expected a whole number, a list or auto, got '010' "
            "(write 10 or 8, whichever is meant)"
        ),
    ),
    "minutes and seconds": (
        "clusters: [{id: a, servers: 1, service_ms: 1:30}]\n",
        "clusters[0].service_ms: expected a number, got '1:30' (write 90 if that is meant)",
    ),
    "bool as number": (
        "max_hops: true\nclusters: [{id: a, servers: 1}]\n",
        "max_hops: expected a whole number, got true",
    ),
    "no server": (
        "clusters: [{id: a, servers: 0}]\n",
        "clusters[0].servers: expected a number of at least 1, got 0",
    ),
    "huge whole number": (
        f"clusters: [{{id: a, servers: 1{'0' * 400}}}]\n",
        (
            "clusters[0].servers: expected a whole number of at most 16 digits, "
            "got a very large number"
        ),
    ),
    "not a number": (
        "gossip_period_ms: .nan\nclusters: [{id: a, servers: 1}]\n",
        "gossip_period_ms: expected a finite number, got .nan",
    ),
    "misspelled field": (
        "clusters: [{id: a, servers: 1, servicems: 40}]\n",
        "clusters[0].servicems: unknown field, did you mean service_ms?",
    ),
    "unknown field": (
        "clusters: [{id: a, servers: 1}]\nlinks: [{between: [a, b], xyzzy: 1}]\n",
        "links[0].xyzzy: unknown field, expected one of between, delay_ms",
    ),
    "field that is no text": (
        "1: x\nclusters: [{id: a, servers: 1}]\n",
        "[1]: expected a field name, got 1",
    ),
    "unknown policy": (
        "policy: best\nclusters: [{id: a, servers: 1}]\n",
        f"policy: expected one of {POLICIES}, got 'best'",
    ),
    "three ends": (
        "clusters: [{id: a, servers: 1}]\nlinks: [{between: [a, b, c]}]\n",
        "links[0].between: expected two cluster ids, got 3",
    ),
    "link to nowhere": (
        "clusters: [{id: a, servers: 1}]\nlinks: [{between: [a, z]}]\n",
        "links[0].between: expected cluster ids (a), got 'z'",
    ),
    "same id twice": (
        "clusters: [{id: a, servers: 1}, {id: a, servers: 1}]\n",
        "clusters[1].id: expected ids that differ, got 'a' twice",
    ),
    "id that no header can bear": (
        "clusters: [{id: 'a b', servers: 1}]\n",
        "clusters[0].id: expected 1 to 63 of A-Z a-z 0-9 . _ -, got 'a b'",
    ),
    "no node": (
        "clusters: [{id: a, servers: 1, nodes: 0}]\n",
        "clusters[0].nodes: expected a number from 1 to 16, got 0",
    ),
    "more nodes than servers": (
        "clusters: [{id: a, servers: 2, nodes: 3}]\n",
        "clusters[0].nodes: expected at most as many as servers (2), got 3: each node needs one",
    ),
    "a list of no nodes": (
        "clusters: [{id: a, servers: 2, nodes: []}]\n",
        "clusters[0].nodes: expected 1 to 16 nodes, got 0",
    ),
    "too few bytes for each of several nodes": (
        "clusters: [{id: a, servers: 2, nodes: 2, held_limit_bytes: 131071}]\n",
        "clusters[0].held_limit_bytes: expected at least 65536 for each of 2 nodes, got 131071",
    ),
    "two nodes with one url": (
        "clusters: [{id: a, servers: 2, nodes: [{url: 'http://h:1'}, {url: 'http://h:1'}]}]\n",
        "clusters[0].nodes[1].url: expected urls that differ, got http://h:1 twice",
    ),
    "a node without a url": (
        "clusters: [{id: a, servers: 2, nodes: [{url: 'http://h:1'}, {}]}]\n",
        "clusters[0].nodes[1].url: expected a value, the field is missing",
    ),
    "a url beside several nodes": (
        "clusters: [{id: a, servers: 2, nodes: 2, url: 'http://h:1'}]\n",
        "clusters[0].url: expected none beside several nodes: nodes can be a list of their urls",
    ),
    "a url beside a list of nodes": (
        (
            "clusters: [{id: a, servers: 2, url: 'http://h:3', nodes: [{url: 'http://h:1'}, "
            "{url: 'http://h:2'}]}]\n"
        ),
        "clusters[0].url: expected none beside a list of nodes, which have theirs",
    ),
    "a node without the address that its handler needs": (
        (
            "clusters: [{id: a, servers: 2, handler: 'proxy:http://h:9', nodes: "
            "[{url: 'http://h:1', proxy_url: 'http://h:3'}, {url: 'http://h:2'}]}]\n"
        ),
        (
            "clusters[0].nodes[1].proxy_url: expected a proxy_url, since the cluster has a proxy: "
            "handler"
        ),
    ),
    "an address of a node that its handler does not need": (
        (
            "clusters: [{id: a, servers: 2, nodes: [{url: 'http://h:1', proxy_url: 'http://h:3'}, "
            "{url: 'http://h:2'}]}]\n"
        ),
        "clusters[0].nodes[0].proxy_url: expected only along with a proxy: handler",
    ),
    "nodes with a list of servers": (
        "clusters: [{id: a, servers: [{id: x}, {id: y}], nodes: 2}]\n",
        "clusters[0].nodes: expected one node with a list of servers",
    ),
    "https at one node only": (
        (
            "name: n\nclusters: [{id: a, servers: 2, nodes: [{url: 'https://h:1'}, "
            "{url: 'http://h:2'}]}]\n"
        ),
        "clusters[0].nodes: expected https:// between all nodes or between none, got http://h:2",
    ),
    "handler": (
        "clusters: [{id: a, servers: 1, handler: 'python:os'}]\n",
        (
            "clusters[0].handler: expected sleep, spin, python:MODULE:FUNCTION, "
            "http:URL[,URL...], proxy:URL[,URL...] or dask:ADDRESS:MODULE:FUNCTION, got 'python:os'"
        ),
    ),
    "misspelled handler": (
        "clusters: [{id: a, servers: 1, handler: 'pyhton:json:dumps'}]\n",
        (
            "clusters[0].handler: expected sleep, spin, python:MODULE:FUNCTION, "
            "http:URL[,URL...], proxy:URL[,URL...] or dask:ADDRESS:MODULE:FUNCTION, "
            "got 'pyhton:json:dumps', did you mean python?"
        ),
    ),
    "url with a path": (
        "clusters: [{id: a, servers: 1, url: 'http://127.0.0.1:80/x'}]\n",
        "clusters[0].url: expected http(s)://HOST[:PORT], got 'http://127.0.0.1:80/x'",
    ),
    "handler http without a url": (
        "clusters: [{id: a, servers: 1, handler: 'http:http://h:1/,'}]\n",
        "clusters[0].handler: expected http:URL[,URL...], got an empty URL",
    ),
    "handler http with a url twice": (
        "clusters: [{id: a, servers: 1, handler: 'http:http://h,http://H:80/'}]\n",
        "clusters[0].handler: expected URLs that differ, got 'http://H:80/' twice",
    ),
    "memory limit of threads": (
        "clusters: [{id: a, servers: 1, handler: 'python:m:f', memory_limit_bytes: 100000000}]\n",
        (
            "clusters[0].memory_limit_bytes: "
            "expected only along with workers: process and a python handler"
        ),
    ),
    "memory limit too low": (
        (
            "clusters: [{id: a, servers: 1, handler: 'python:m:f', workers: process, "
            "memory_limit_bytes: 1000}]\n"
        ),
        "clusters[0].memory_limit_bytes: expected a number of at least 67108864, got 1000",
    ),
    "held limit too low": (
        "clusters: [{id: a, servers: 1, held_limit_bytes: 1000}]\n",
        "clusters[0].held_limit_bytes: expected a number of at least 65536, got 1000",
    ),
    "killing what is no process": (
        "clusters: [{id: a, servers: 1, workers: process, kill_after_ms: 100}]\n",
        (
            "clusters[0].kill_after_ms: "
            "expected only along with workers: process and a python handler"
        ),
    ),
    "handler dask": (
        "clusters: [{id: a, servers: 1, handler: 'dask:tcp'}]\n",
        "clusters[0].handler: expected dask:[tcp://]HOST:PORT:MODULE:FUNCTION, got 'dask:tcp'",
    ),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_file_gets_one_line_with_its_name_and_field(case: str, tmp_path: Path) -> None:
    """A bad file is refused in one line: its name, the field, what was expected."""
    text, expected = BAD_FILES[case]
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_topology(str(path))
    assert str(caught.value) == f"{path}: {expected}"


def test_file_of_the_contract_is_read(tmp_path: Path) -> None:
    """Every field of a file arrives in the model, and the others take their defaults."""
    path = tmp_path / "pair.yaml"
    path.write_text(CONTRACT_EXAMPLE, encoding="utf-8")
    a, b = ClusterId("a"), ClusterId("b")
    assert load_topology(str(path)) == Topology(
        name="pair",
        policy="two-choice",
        clusters=(
            Cluster(
                id=a,
                servers=5,
                service_ms=40,
                handler="python:jobs.thumbnails:render",
                workers="process",
                memory_limit_bytes=268_435_456,
                kill_after_ms=500,
                delivery_ms=6,
                queue_limit=10_000,
                held_limit_bytes=536_870_912,
                url="http://127.0.0.1:8101",
            ),
            Cluster(
                id=b,
                servers=2,
                handler="http:http://127.0.0.1:9000/run,http://[::1]:9000/run?x=1",
            ),
        ),
        links=(Link(between=(a, b), delay_ms=35),),
    )


def test_file_without_a_name_is_called_after_itself(tmp_path: Path) -> None:
    """The name may be left out: the file's own name without its suffix takes its place."""
    path = tmp_path / "lab.yaml"
    path.write_text("clusters: [{id: a, servers: 1}]\n", encoding="utf-8")
    assert load_topology(str(path)).name == "lab"


@pytest.mark.parametrize("name", ["ring6", "", "no/such.yaml", "ring\x005"])
def test_unknown_name_is_told_the_builtin_ones(name: str, tmp_path: Path) -> None:
    """A name that is neither built in nor a file is answered with the names there are."""
    with pytest.raises(InputError) as caught:
        load_topology(name)
    message = str(caught.value)
    assert message.count("\n") == 0
    if name:
        assert all(builtin in message for builtin in BUILTIN_NAMES)
    assert tmp_path.name not in message


def test_directory_is_refused(tmp_path: Path) -> None:
    """A directory in place of a file gets one line."""
    with pytest.raises(InputError, match="expected a file, got a directory"):
        load_topology(str(tmp_path))


def test_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 text get one line that says where."""
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"name: caf\xe9\n")
    with pytest.raises(InputError, match=r"expected UTF-8 text, got byte 0xe9 at 9"):
        load_topology(str(path))


def test_file_over_the_limit_is_refused_unread(tmp_path: Path) -> None:
    """A file of more than 1 MiB is refused before it is parsed."""
    path = tmp_path / "long.yaml"
    path.write_bytes(b"# " + b"x" * 1_048_576)
    with pytest.raises(InputError, match="expected at most 1048576 bytes, got more"):
        load_topology(str(path))


def test_alias_bomb_costs_nothing(tmp_path: Path) -> None:
    """Nested aliases, a billion entries if written out, are refused where they become too many."""
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 9)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join([*lines, "name: *l8", "clusters: &c [*c]"]), encoding="utf-8")
    with pytest.raises(InputError, match="line 5: expected at most 100000 values, got more"):
        load_topology(str(path))


@given(
    text=st.text(st.characters(codec="utf-8")) | st.from_regex(r"([a-z!&*<\[{\-?|>:, \n0-9]|!!)*")
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_text_raises_anything_but_input_error(text: str, tmp_path: Path) -> None:
    """Whatever a file holds, it is read or refused in one line."""
    path = tmp_path / "any.yaml"
    path.write_bytes(text.encode())
    with pytest.raises(InputError) as caught:
        load_topology(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", ["1e9", "1E+9", "1.e9", "1.0e9", "+1e9", ".1e10", "1.0e+9"])
def test_numbers_as_yaml_1_2_writes_them(number: str, tmp_path: Path) -> None:
    """An exponent needs neither a point before it nor a sign; in quotes it is text."""
    path = tmp_path / "numbers.yaml"
    text = "clusters: [{{id: a, servers: 1, service_ms: {}}}]\n"
    path.write_text(text.format(number))
    assert load_topology(str(path)).clusters[0].service_ms == 1e9
    path.write_text(text.format(f"'{number}'"))
    with pytest.raises(InputError, match=r"service_ms: expected a number, got '"):
        load_topology(str(path))
