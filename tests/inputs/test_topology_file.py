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
ONE = "clusters: [{id: a, servers: 1}]\n"
TWO = "clusters: [{id: a, servers: 1}, {id: b, servers: 1}]\n"
OS_TAG = "'tag:yaml.org,2002:python/object/apply:os.getcwd'"

BAD_FILES = [
    ("", "expected a mapping of fields, got nothing"),
    ("- a\n", "expected a mapping of fields, got a list"),
    ("name: x\nclusters: [\n", "line 3: expected YAML, got: did not find expected node content"),
    ("name: x\ny: \x07\n", "line 2: expected printable text, got character 0x07"),
    ("max_hops: 1\nmax_hops: 2\n", "line 2: expected each field once, got 'max_hops' twice"),
    ("a: &c {id: a}\nb: {<<: *c}\n", "line 2: expected the fields written out, got a merge key <<"),
    ("name: x\n---\nname: y\n", "line 2: expected a single document, got another one"),
    (f"name: !<{OS_TAG[1:-1]}> []\n", f"line 1: expected YAML without unusual tags, got {OS_TAG}"),
    (
        "a: " + "[\n" * 5000,
        "line 32: expected at most 32 lists and mappings within each other, got",
    ),
    ("clusters: &c [*c]\n", "line 1: expected the alias of a value before it, got *c"),
    ("clusters:\n" + "- {}\n" * 1001, "clusters: expected at most 1000 clusters, got 1001"),
    ("name: x\n", "clusters: expected a value, the field is missing"),
    ("clusters: []\n", "clusters: expected at least one cluster, got none"),
    ("clusters: [{id: a}]\n", "clusters[0].servers: expected a value, the field is missing"),
    (
        "clusters: [{id: true, servers: true}, {}]\n",
        "clusters[0].id: expected an id, got true (put it in quotes) (and 3 more)",
    ),
    (
        "clusters: [{id: a, server: 1}]\n",
        "clusters[0].server: unknown field, did you mean servers?",
    ),
    (
        "clusters: [{servers: x}, {id: b, servers: 1}]\n",
        "clusters[0].servers: expected a whole number, a list or auto, got 'x' (and 1 more)",
    ),
    (
        "clusters: [{id: a, servers: 010}]\n",
        "clusters[0].servers: expected a whole number, a list or auto, got '010' (write 10 or 8, ",
    ),
    (f"max_hops: true\n{ONE}", "max_hops: expected a whole number, got true"),
    ("clusters: [{id: a, servers: 0}]\n", "clusters[0].servers: expected a number of at least 1, "),
    (
        f"clusters: [{{id: a, servers: 1{'0' * 400}}}]\n",
        "clusters[0].servers: expected a whole number of at most 16 digits, got a very large numbe",
    ),
    (f"gossip_period_ms: .nan\n{ONE}", "gossip_period_ms: expected a finite number, got .nan"),
    (
        f"{ONE}links: [{{between: [a, b], xyzzy: 1}}]\n",
        "links[0].xyzzy: unknown field, expected one of between, delay_ms",
    ),
    (f"1: x\n{ONE}", "[1]: expected a field name, got 1"),
    (f"policy: best\n{ONE}", f"policy: expected one of {POLICIES}, got 'best'"),
    (
        f"{ONE}links: [{{between: [a, b, c]}}]\n",
        "links[0].between: expected two cluster ids, got 3",
    ),
    (f"{ONE}links: [{{between: [a, z]}}]\n", "links[0].between: expected cluster ids (a), got 'z'"),
    (
        f"{ONE}links: [{{between: [a, a]}}]\n",
        "links[0].between: expected two clusters, got 'a' twi",
    ),
    (
        f"{TWO}links: [{{between: [a, b]}}, {{between: [b, a]}}]\n",
        "links[1].between: expected one link per pair, got ['a', 'b'] twice",
    ),
    (
        f"{TWO}links: [{{between: [a, b], delay_ms: -1}}]\n",
        "links[0].delay_ms: expected a number of at least 0, got -1",
    ),
    (TWO.replace("id: b", "id: a"), "clusters[1].id: expected ids that differ, got 'a' twice"),
    (
        ONE.replace("a", "'a b'", 1),
        "clusters[0].id: expected 1 to 63 of A-Z a-z 0-9 . _ -, got 'a b'",
    ),
]
HANDLERS = (
    "expected sleep, spin, python:MODULE:FUNCTION, http:URL[,URL...], proxy:URL[,URL...] or "
    "dask:ADDRESS:MODULE:FUNCTION, got "
)
NODES = "[{url: 'http://h:1'%s}, {url: 'http://h:2'}]"
PROXIED = NODES % ", proxy_url: 'http://h:3'"
ONLY_PROCESSES = "expected only along with workers: process and a python handler"

BAD_FIELDS = [
    ("service_ms: 1:30", "service_ms: expected a number, got '1:30' (write 90 if that is meant)"),
    ("servicems: 40", "servicems: unknown field, did you mean service_ms?"),
    ("nodes: 0", "nodes: expected a number from 1 to 16, got 0"),
    ("nodes: 3", "nodes: expected at most as many as servers (2), got 3: each needs one"),
    ("nodes: []", "nodes: expected 1 to 16 nodes, got 0"),
    (
        "nodes: 2, held_limit_bytes: 131071",
        "held_limit_bytes: expected at least 65536 for each of 2 nodes, got 131071",
    ),
    (
        "nodes: [{url: 'http://h:1'}, {url: 'http://h:1'}]",
        "nodes[1].url: expected urls that differ, got http://h:1 twice",
    ),
    ("nodes: [{url: 'http://h:1'}, {}]", "nodes[1].url: expected a value, the field is missing"),
    ("nodes: 2, url: 'http://h:1'", "url: expected none beside several nodes: nodes can be a list"),
    (
        f"url: 'http://h:3', nodes: {NODES % ''}",
        "url: expected none beside a list of nodes, which ",
    ),
    (
        f"handler: 'proxy:http://h:9', nodes: {PROXIED}",
        "nodes[1].proxy_url: expected a proxy_url, since the cluster has a proxy: handler",
    ),
    (f"nodes: {PROXIED}", "nodes[0].proxy_url: expected only along with a proxy: handler"),
    (
        f"nodes: {NODES % ''}".replace("http", "https", 1),
        "nodes: expected https:// between all nodes or between none, got http://h:2",
    ),
    ("handler: 'python:os'", f"handler: {HANDLERS}'python:os'"),
    ("handler: 'pyhton:m:f'", f"handler: {HANDLERS}'pyhton:m:f', did you mean python?"),
    ("url: 'http://h:80/x'", "url: expected http(s)://HOST[:PORT], got 'http://h:80/x'"),
    ("handler: 'http:http://h:1/,'", "handler: expected http:URL[,URL...], got an empty URL"),
    (
        "handler: 'http:http://h,http://H:80/'",
        "handler: expected URLs that differ, got 'http://H:80/' twice",
    ),
    (
        "handler: 'python:m:f', memory_limit_bytes: 100000000",
        f"memory_limit_bytes: {ONLY_PROCESSES}",
    ),
    (
        "handler: 'python:m:f', workers: process, memory_limit_bytes: 1000",
        "memory_limit_bytes: expected a number of at least 67108864, got 1000",
    ),
    ("held_limit_bytes: 1000", "held_limit_bytes: expected a number of at least 65536, got 1000"),
    ("workers: process, kill_after_ms: 100", f"kill_after_ms: {ONLY_PROCESSES}"),
    ("workers: fiber", "workers: expected thread or process, got 'fiber'"),
    (
        "handler: 'dask:tcp'",
        "handler: expected dask:[tcp://]HOST:PORT:MODULE:FUNCTION, got 'dask:tcp'",
    ),
]
BAD_FILES += [
    (f"name: n\nclusters: [{{id: a, servers: 2, {fields}}}]\n", f"clusters[0].{expected}")
    for fields, expected in BAD_FIELDS
]
BAD_FILES += [
    (
        "clusters: [{id: a, servers: [{id: x}, {id: y}], nodes: 3}]\n",
        "clusters[0].nodes: expected at most as many as tokens (2), got 3: each needs one",
    ),
    (
        "clusters: [{id: a, discipline: fcfs, nodes: 2, servers: [{id: x}], classes: [{id: c, servers: [x], tokens: 2}]}]\n",  # noqa: E501
        "clusters[0].nodes: expected one with discipline fcfs, unless each server has one token",
    ),
]


@pytest.mark.parametrize(("text", "expected"), BAD_FILES, ids=[told[:60] for _, told in BAD_FILES])
def test_bad_file_gets_one_line_with_its_name_and_field(
    text: str, expected: str, tmp_path: Path
) -> None:
    """A bad file is refused in one line: its name, the field, what was expected."""
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_topology(str(path))
    assert str(caught.value).startswith(f"{path}: {expected}")
    assert "\n" not in str(caught.value)


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


def test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """A directory, bytes that are no text, and more than 1 MiB, which is not parsed."""
    path = tmp_path / "latin.yaml"
    with pytest.raises(InputError, match="expected a file, got a directory"):
        load_topology(str(tmp_path))
    path.write_bytes(b"name: caf\xe9\n")
    with pytest.raises(InputError, match=r"expected UTF-8 text, got byte 0xe9 at 9"):
        load_topology(str(path))
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


@pytest.mark.parametrize("number", ["1E+9", "1.e9", "+1e9", ".1e10"])
def test_numbers_as_yaml_1_2_writes_them(number: str, tmp_path: Path) -> None:
    """An exponent needs neither a point before it nor a sign; in quotes it is text."""
    path = tmp_path / "numbers.yaml"
    text = "clusters: [{{id: a, servers: 1, service_ms: {}}}]\n"
    path.write_text(text.format(number))
    assert load_topology(str(path)).clusters[0].service_ms == 1e9
    path.write_text(text.format(f"'{number}'"))
    with pytest.raises(InputError, match=r"service_ms: expected a number, got '"):
        load_topology(str(path))
