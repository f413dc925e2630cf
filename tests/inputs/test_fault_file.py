"""Fault files: what is read, the one line that every bad file gets, and random schedules."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.inputs.fault_file import FAULTS_MAX, load_faults
from spillover.inputs.random_faults import random_faults
from spillover.inputs.topology_file import load_topology
from spillover.model.errors import InputError
from spillover.model.faults import (
    CLUSTER_ACTIONS,
    FAULT_ACTIONS,
    ClusterFault,
    FaultSchedule,
    LinkFault,
    TokensFault,
)
from spillover.model.topology import Cluster, Link, Topology
from spillover.model.unlike_servers import Server, ServerClass

RING5 = load_topology("ring5")
POOLED = Topology(
    name="pooled",
    clusters=(
        Cluster(
            id="a",
            servers=(Server(id="s1"), Server(id="s2", rate=4.0)),
            classes=(
                ServerClass(id="c1", servers=("s1",), tokens=2),
                ServerClass(id="c2", servers=("s2",)),
            ),
        ),
        Cluster(id="b", servers=2),
    ),
    links=(Link(between=("a", "b")),),
)
OF_POOLS = {"down", "up", "tokens"}
OF_SITES = {"drain", "undrain"}
"""Drawn at random for clusters of several nodes only."""

EXAMPLE = """
faults:
  - {at_s: 1.0, action: crash, cluster: a}
  - {at_s: 3, action: restart, cluster: a}
  - {at_s: 3.5, action: pause, cluster: b}
  - {at_s: 4.0, action: resume, cluster: b}
  - {at_s: 4.0, action: slow, cluster: c, factor: 3}
  - {at_s: 4.0, action: clock, cluster: c, rate: 1.01, offset_ms: -250}
  - {at_s: 4.5, action: failing, cluster: c, share: 0.4, fail_ms: 2, status: 503}
  - {at_s: 4.9, action: failing, cluster: c, share: 0}
  - {at_s: 4.9, action: swallows, cluster: a, share: 1}
  - {at_s: 4.9, action: late, cluster: b, late_ms: 4000}
  - {at_s: 4.9, action: hangs, cluster: c, share: 0.5}
  - {at_s: 5.0, action: link, between: [a, b], delay_ms: 80, jitter_ms: 20, loss: 0.05}
  - {at_s: 5.0, action: link, from: a, to: b, duplicate: 0.1, reorder: 0.1}
  - {at_s: 6.0, action: cut, from: a, to: b}
  - {at_s: 9.0, action: heal, between: [a, b]}
"""

AB = (("a", "b"),)
BOTH = (("a", "b"), ("b", "a"))

POOL_EXAMPLE = """
faults:
  - {at_s: 1, action: down, cluster: a, server: s1}
  - {at_s: 2, action: slow, cluster: a, server: s2, factor: 3}
  - {at_s: 3, action: failing, cluster: a, server: s2, share: 0.5}
  - {at_s: 4, action: tokens, cluster: a, classes: {c1: 1, c2: 9}, servers: {s2: out}}
  - {at_s: 5, action: up, cluster: a, server: s1}
  - {at_s: 6, action: tokens, cluster: a, servers: {s2: in}}
"""

KNOWN_ACTIONS = (
    "crash, restart, pause, resume, slow, clock, failing, down, up, swallows, late, hangs, drain,"
    " undrain, tokens, link, cut, heal"
)
KNOWN_IDS = "expected a cluster id (a, b, c, d, e)"

# Each case: an entry, then what is told behind "faults[0]".
BAD_ENTRIES = [
    ("action: crash, cluster: z", f".cluster: {KNOWN_IDS}, got 'z'"),
    ("action: cut, between: [a, c]", ".between: expected a link of the topology, got a and c, whi"),
    ("action: cut, from: a, to: a", ".from: expected a link of the topology, got a and a, which "),
    ("at_s: -1, action: crash, cluster: a", ".at_s: expected a number of at least 0, got -1"),
    ("at_s: null, action: crash, cluster: a", ".at_s: "),
    ("at_s: .nan, action: crash, cluster: a", ".at_s: expected a number of at least 0, got nan"),
    ("action: explode, cluster: a", f".action: expected one of {KNOWN_ACTIONS}, got 'explode'"),
    ("action: [5]", ".action: expected text, got a list"),
    ("action: crash, clustr: a", ".clustr: not a field of crash, did you mean cluster?"),
    (
        "action: slow, cluster: a, factor: 2, loss: 0.5",
        ".loss: not a field of slow, expected at_s,",
    ),
    ("action: restart, cluster: a", ".action: expected restart only of a cluster that is crashed,"),
    ("action: resume, cluster: a", ".action: expected resume only of a cluster that is paused, a "),
    ("action: slow, cluster: a", ".factor: expected with slow, the field is missing"),
    ("action: clock, cluster: a, rate: 0", ".rate: expected a number from 0.1 to 10, got 0"),
    ("action: link, between: [a, b]", ".delay_ms: expected with link, the field is missing"),
    ("action: link, between: [a, b], loss: 1.5", ".loss: expected a number from 0 to 1, got 1.5"),
    ("action: link, from: a, to: b, delay_ms: -3", ".delay_ms: expected a number of at least 0, "),
    ("action: heal", ".between: expected between, or from and to, the fields are missing"),
    (
        "action: heal, from: a, to: b, between: [a, b]",
        ".between: expected either between, or from ",
    ),
    ("action: heal, between: [a, b, c]", ".between: expected two cluster ids, got a list"),
    ("cluster: a", ".action: expected a value, the field is missing"),
]
OF_UNLIKE = "expected only of a cluster whose servers are unlike, b's are alike"
BAD_POOL_ENTRIES = [
    ("action: down, cluster: b, server: s1", f".server: {OF_UNLIKE}"),
    ("action: tokens, cluster: b, classes: {c1: 2}", f".classes: {OF_UNLIKE}"),
    ("action: down, cluster: a", ".server: expected with down, the field is missing"),
    (
        "action: slow, cluster: a, server: s9, factor: 2",
        ".server: expected a server of the cluster ",
    ),
    ("action: up, cluster: a, server: s1", ".action: expected up only of a server that is down, "),
    (
        "action: crash, cluster: a, server: s1",
        ".server: not a field of crash, expected at_s, action",
    ),
    ("action: tokens, cluster: a", ".classes: expected with tokens, the field is missing"),
    ("action: tokens, cluster: a, classes: {c9: 2}", ".classes: expected a class of the cluster ("),
    (
        "action: tokens, cluster: a, servers: {s9: out}",
        ".servers: expected a server of the cluster ",
    ),
    (
        "action: tokens, cluster: a, classes: {c1: 0}",
        ".classes: expected at least 1 token for c1, ",
    ),
    (
        "action: tokens, cluster: a, classes: {c1: 1.5}",
        ".classes: expected a whole number for c1, ",
    ),
    (
        "action: tokens, cluster: a, servers: {s1: 'off'}",
        ".servers: expected out or in for s1, got",
    ),
    ("action: tokens, cluster: a, classes: [c1]", ".classes: expected a mapping by id, got a list"),
]

BAD_FILES = [
    ("", "expected a mapping with the field faults, got nothing"),
    ("- a\n", "expected a mapping with the field faults, got a list"),
    ("{}", "faults: expected a list, the field is missing, expected faults and nothing"),
    ("faults: []\nseed: 3\n", "seed: unknown field, expected faults and nothing else"),
    ("faults: {a: 1}", "faults: expected a list, got a mapping"),
    ("faults: [crash]", "faults[0]: expected a mapping of fields, got 'crash'"),
    ("faults: [{action: crash, cluster: a}]", "faults[0].at_s: expected a value, the field is mis"),
    (
        "faults: [{at_s: 2, action: crash, cluster: a}, {at_s: 1.5, action: crash, cluster: b}]",
        "faults[1].at_s: expected times that do not descend, got 1.5 after 2",
    ),
    ("faults: [", "line 1: expected YAML, got: did not find expected node content"),
    ("faults: []\nfaults: []\n", "line 2: expected each field once, got 'faults' twice"),
]


def read(tmp_path, text, topology=RING5):
    path = tmp_path / "f.yaml"
    path.write_text(text)
    return load_faults(str(path), topology, 10.0)


def test_the_example_is_read(tmp_path):
    """Every action, with its numbers and directions."""
    schedule = read(tmp_path, EXAMPLE)
    assert schedule.faults == (
        ClusterFault(at_s=1.0, action="crash", cluster="a"),
        ClusterFault(at_s=3.0, action="restart", cluster="a"),
        ClusterFault(at_s=3.5, action="pause", cluster="b"),
        ClusterFault(at_s=4.0, action="resume", cluster="b"),
        ClusterFault(at_s=4.0, action="slow", cluster="c", factor=3.0),
        ClusterFault(at_s=4.0, action="clock", cluster="c", rate=1.01, offset_ms=-250.0),
        ClusterFault(at_s=4.5, action="failing", cluster="c", share=0.4, fail_ms=2.0, status=503.0),
        ClusterFault(at_s=4.9, action="failing", cluster="c", share=0.0),
        ClusterFault(at_s=4.9, action="swallows", cluster="a", share=1.0),
        ClusterFault(at_s=4.9, action="late", cluster="b", late_ms=4000.0),
        ClusterFault(at_s=4.9, action="hangs", cluster="c", share=0.5),
        LinkFault(
            at_s=5.0, action="link", directions=BOTH, delay_ms=80.0, jitter_ms=20.0, loss=0.05
        ),
        LinkFault(at_s=5.0, action="link", directions=AB, duplicate=0.1, reorder=0.1),
        LinkFault(at_s=6.0, action="cut", directions=AB),
        LinkFault(at_s=9.0, action="heal", directions=BOTH),
    )
    assert {fault.action for fault in schedule.faults} == set(FAULT_ACTIONS) - OF_POOLS - OF_SITES
    assert (len(schedule), schedule.last_s) == (15, 9.0)


def test_what_happens_to_unlike_servers_is_read(tmp_path):
    """Of one server by its id, and of what an operator says of tokens."""
    schedule = read(tmp_path, POOL_EXAMPLE, POOLED)
    assert schedule.faults == (
        ClusterFault(at_s=1.0, action="down", cluster="a", server="s1"),
        ClusterFault(at_s=2.0, action="slow", cluster="a", server="s2", factor=3.0),
        ClusterFault(at_s=3.0, action="failing", cluster="a", server="s2", share=0.5),
        TokensFault(
            at_s=4.0,
            action="tokens",
            cluster="a",
            classes=(("c1", 1), ("c2", 9)),
            servers=(("s2", "out"),),
        ),
        ClusterFault(at_s=5.0, action="up", cluster="a", server="s1"),
        TokensFault(at_s=6.0, action="tokens", cluster="a", servers=(("s2", "in"),)),
    )


@pytest.mark.parametrize(
    ("entry", "expected", "topology"),
    [
        *((*case, RING5) for case in BAD_ENTRIES),
        *((*case, POOLED) for case in BAD_POOL_ENTRIES),
    ],
)
def test_bad_entries_get_one_line(tmp_path, entry, expected, topology):
    entry = entry if "at_s" in entry else f"at_s: 1, {entry}"
    with pytest.raises(InputError) as raised:
        read(tmp_path, f"faults: [{{{entry}}}]\n", topology)
    assert str(raised.value).startswith(f"{tmp_path / 'f.yaml'}: faults[0]{expected}")
    assert "\n" not in str(raised.value)


def test_no_faults_are_no_trouble(tmp_path):
    schedule = read(tmp_path, "faults: []\n")
    assert (len(schedule), schedule.last_s) == (0, 0.0)


@pytest.mark.parametrize(("text", "expected"), BAD_FILES)
def test_bad_files_get_one_line(tmp_path, text, expected):
    with pytest.raises(InputError) as raised:
        read(tmp_path, text)
    assert str(raised.value).startswith(f"{tmp_path / 'f.yaml'}: {expected}")
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_files_that_cannot_be_read(tmp_path):
    for name, content, expected in [
        ("missing", None, "expected a YAML file of faults or random:SEED, found no such file"),
        ("", None, "expected a file, got a directory"),
        ("bytes", b"\xff\xfe\xff", "expected UTF-8 text"),
        ("many", b"faults: [" + b"1," * (FAULTS_MAX + 1) + b"]", "faults: expected at most 10000"),
    ]:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InputError) as raised:
            load_faults(str(path), RING5, 1.0)
        assert str(raised.value).startswith(f"{path}: {expected}")


@given(st.text(max_size=80))
def test_no_text_makes_it_raise_anything_else(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("faults") / "f.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        load_faults(str(path), RING5, 1.0)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017 - most texts raise, and some are fine


@pytest.mark.parametrize("name", ["random:", "random:x", "random:-1", "random:²"])
def test_random_schedules_need_a_seed(name):
    expected = f"{name}: expected random:SEED with a whole number as the seed"
    with pytest.raises(InputError, match=expected):
        load_faults(name, RING5, 1.0)


def test_random_schedules_fit_and_heal():
    """Whatever begins ends within the run, of every kind; the same seed gives the same."""
    kinds = Counter()
    for seed in range(100):
        schedule = load_faults(f"random:{seed}", RING5, 7.0)
        schedule.check(RING5)
        assert schedule == load_faults(f"random:{seed}", RING5, 7.0)
        assert schedule.name == f"random:{seed}"
        assert 2 <= len(schedule) <= 12
        assert schedule.last_s <= 7.0
        kinds.update(fault.action for fault in schedule.faults)
        balance = Counter(fault.action for fault in schedule.faults)
        assert balance["crash"] == balance["restart"]
        assert balance["pause"] == balance["resume"]
        assert balance["cut"] + balance["link"] == balance["heal"]
    assert min(kinds[action] for action in FAULT_ACTIONS if action not in OF_POOLS | OF_SITES) > 10
    assert not any(kinds[action] for action in OF_POOLS)


def test_random_schedules_of_unlike_servers_fit_and_heal():
    """All that can happen to one of them, and ends again."""
    kinds = Counter()
    for seed in range(100):
        schedule = load_faults(f"random:{seed}", POOLED, 7.0)
        schedule.check(POOLED)
        limits, out = {"c1": 2, "c2": 1}, set()
        for fault in schedule.faults:
            kinds[fault.action, getattr(fault, "server", None) is not None] += 1
            if isinstance(fault, TokensFault):
                limits |= dict(fault.classes)
                for server, said in fault.servers:
                    (out.add if said == "out" else out.remove)(server)
        assert limits == {"c1": 2, "c2": 1}
        assert not out
        balance = Counter(fault.action for fault in schedule.faults)
        assert balance["down"] == balance["up"]
    of_servers = [("down", True), ("up", True), ("slow", True), ("failing", True)]
    assert min(kinds[kind] for kind in [*of_servers, ("tokens", False)]) > 10


def test_random_schedules_of_one_cluster_alone():
    alone = load_topology("ring5")
    alone = type(alone)(name="alone", clusters=alone.clusters[:1])
    for seed in range(50):
        schedule = load_faults(f"random:{seed}", alone, 1.0)
        assert {fault.action for fault in schedule.faults} <= set(CLUSTER_ACTIONS)


def test_a_schedule_made_by_hand_is_checked_against_its_topology():
    schedule = FaultSchedule("mine", (ClusterFault(at_s=1.0, action="crash", cluster="q"),))
    with pytest.raises(InputError, match=r"mine: faults\[0\].cluster: expected a cluster id"):
        schedule.check(RING5)


SITES = Topology(
    name="sites",
    clusters=(Cluster(id="a", servers=4, nodes=2), Cluster(id="b", servers=2)),
    links=(Link(between=("a", "b")),),
)


def at_sites(tmp_path, *entries):
    path = tmp_path / "faults.yaml"
    path.write_text("faults:\n" + "".join(f"  - {{{entry}}}\n" for entry in entries))
    return load_faults(str(path), SITES, 10.0).faults


def test_a_node_is_named_as_everywhere(tmp_path):
    faults = at_sites(
        tmp_path,
        "at_s: 1, action: crash, node: a/2",
        "at_s: 2, action: drain, node: a/1",
        "at_s: 3, action: restart, node: a/2",
        "at_s: 4, action: cut, between: [a/1, a/2]",
        "at_s: 5, action: drain, cluster: b",
    )
    told = [(fault.cluster, fault.node) for fault in faults if isinstance(fault, ClusterFault)]
    assert told == [("a", 2), ("a", 1), ("a", 2), ("b", None)]
    assert faults[3].directions == (("a/1", "a/2"), ("a/2", "a/1"))


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("action: crash, node: a/3", "node: expected a node of the cluster (a/1, a/2), got a/3"),
        ("action: crash, node: a", "node: expected the name of a node as a/2, got 'a'"),
        ("action: crash, node: c/1", "cluster: expected a cluster id (a, b), got 'c'"),
        ("action: crash, node: a/1, cluster: a", "node: expected either cluster or node"),
        ("action: restart, node: a/1", "action: expected restart only of a node that is crashed"),
        ("action: cut, between: [a/1, b]", "between: expected nodes only where two of one cluster"),
        ("action: cut, between: [a/1, a/1]", "between: expected nodes only where two of one"),
        ("action: cut, between: [a/1, a/9]", "between: expected a node (a/1, a/2), got a/9"),
        ("action: cut, from: a/1, to: a/2", "between: expected nodes only where two of one"),
        ("action: link, between: [a/1, a/2], loss: 1", "between: expected nodes only where two of"),
    ],
)
def test_a_node_that_is_not_there_is_refused_in_one_line(tmp_path, entry, problem):
    with pytest.raises(InputError) as told:
        at_sites(tmp_path, f"at_s: 1, {entry}")
    assert f"faults[0].{problem}" in str(told.value)


def test_random_faults_fit_sites_of_several_nodes():
    for seed in range(20):
        random_faults(SITES, seed, 10.0)  # which checks them


def test_what_happens_to_a_cluster_happens_to_all_of_its_nodes(tmp_path):
    with pytest.raises(InputError, match="restart only of a node that is crashed, a/2 is up"):
        at_sites(
            tmp_path,
            "at_s: 1, action: crash, node: a/1",
            "at_s: 2, action: restart, cluster: a",
        )
