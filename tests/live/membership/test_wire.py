"""A configuration on its way: what is said is what is heard; what is none is refused in a line."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from spillover.inputs.topology_file import read_topology, short_text, told_text
from spillover.live.membership.wire import decode_configuration, encode_configuration
from spillover.model.addresses import is_plain_url
from spillover.model.configuration import LINEAGE_MAX, Configuration, of_file
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Link, Topology
from spillover.model.unlike_servers import Server

A, B = (Cluster(id=ClusterId(name), servers=1, url=f"http://{name}:80") for name in "ab")
PLAIN = Topology(
    name="plain", clusters=(A, B), links=(Link(between=(A.id, B.id), delay_ms=1.5),)
)  # fmt: skip


def changed(count: int) -> Configuration:
    """Returns what has come of so many changes."""
    found = of_file(PLAIN, short_text(PLAIN))
    for number in range(count):
        topology = replace(PLAIN, max_hops=number)
        found = found.next(("b", 7), topology, short_text(topology))
    return found


@pytest.mark.parametrize("count", [0, 1, LINEAGE_MAX + 2])
def test_what_is_said_is_heard(count):
    configuration = changed(count)
    said = encode_configuration(configuration)
    assert decode_configuration(said, "b", "plain") == configuration


def test_a_federation_without_a_name_takes_that_of_the_reader():
    unnamed = replace(PLAIN, is_named=False)
    assert "name" not in short_text(unnamed)
    heard = read_topology(short_text(unnamed), "b", "mine")
    assert (heard.name, heard.is_named) == ("mine", False)


def test_older_nodes_leave_the_paper_s_policy_out():
    """It was their default. What is told always says the policy, so that all go by one."""
    told = short_text(PLAIN)
    assert told.endswith("\npolicy: adaptive\n")
    older = of_file(PLAIN, told.removesuffix("policy: adaptive\n"))
    heard = decode_configuration(encode_configuration(older), "b", "plain")
    assert heard.topology.policy == "paper"
    told_on = decode_configuration(encode_configuration(heard), "c", "plain")
    assert told_on == heard


@given(st.text(st.characters(codec="utf-8")))
def test_what_is_told_is_yaml_for_older_nodes_too(text: str):
    """They read it as a file, strictly or not, whatever stands in names and urls."""
    url = f"http://c{text}"
    assume(is_plain_url(url))
    pool = Cluster(id=ClusterId("p"), servers=(Server(id="s", rate=0.25),), url=url)
    topology = replace(PLAIN, clusters=(A, B, pool))
    told = told_text(topology)
    assert yaml.safe_load(told) == json.loads(told)
    heard = [decode_configuration(
        encode_configuration(of_file(topology, one)), "b", "plain").topology
        for one in (told, short_text(topology))]  # fmt: skip
    assert heard == [topology, topology]
    assert read_topology(told, "f", "plain") == topology


def test_later_versions_may_say_more():
    said = json.loads(encode_configuration(changed(1))) | {"more": 1}
    assert decode_configuration(json.dumps(said), "b", "plain") == changed(1)


@pytest.mark.parametrize(
    "change",
    [
        {"stamp": [1, "b"]},
        {"stamp": [-1, "b", 1]},
        {"stamp": [1, "b" * 64, 1]},
        {"topology": 5},
        {"topology": "clusters: []"},
        {"topology": "a: ["},
        {"topology": ""},
        {"topology": "{"},
        {"topology": '{"clusters": 1e999}'},
        {"topology": '{"clusters":' + "[" * 5_000},
        {"topology": "x" * 1_048_577},
        {"topology": "{" + ",".join(f'"k{n}":1' for n in range(60_000)) + "}"},
        {"lineage": [[5, "b", 1]]},
        {"lineage": [[0, "", 0]] * (LINEAGE_MAX + 1)},
    ],
)
def test_what_is_none_is_refused_in_one_line(change):
    said = json.loads(encode_configuration(changed(1))) | change
    with pytest.raises(InputError) as raised:
        decode_configuration(json.dumps(said), "cluster b", "plain")
    assert str(raised.value).startswith("cluster b: ")
    assert "\n" not in str(raised.value)


DEEP = encode_configuration(changed(1))[:-1] + b',"more":' + b"[" * 100_000


@pytest.mark.parametrize("said", [b"", b"[]", b"nonsense", b"{}", b"\xff", DEEP])
def test_garbage_is_refused_too(said):
    with pytest.raises(InputError):
        decode_configuration(said, "cluster b", "plain")
