"""Unlike servers in topology files: what is read, and the one line that every fault gets."""

import pytest

from spillover.inputs.topology_file import load_topology
from spillover.model.errors import InputError
from spillover.model.topology import Cluster
from spillover.model.unlike_servers import JobType, Server, ServerClass

SITE = """
clusters:
  - id: paris
    servers: [{id: big, rate: 4, handler: "http:http://gpu:9000/run"}, {id: small}, {id: 3}]
    classes: [{id: large, servers: [big], tokens: 6}, {id: 2, servers: [small, 3]}]
    types: [{id: llm, classes: [large]}, {id: thumbnail, classes: [2, large]}]
    on_block: queue
    discipline: fcfs
    workers: process
    service_ms: 100
"""
SERVERS = SITE.partition("servers: ")[2].partition("\n")[0]
ONLY_OF_PROCESSES = "kill_after_ms: expected only along with workers: process and a python handler"

# Each case: a part of the site, what stands in its place, then what is told behind "clusters[0].".
BAD_PARTS = [
    (SERVERS, "[]", "servers: expected at least one server, got none"),
    (SERVERS, "3", "classes: expected only along with a list of servers"),
    ("{id: small}", "{id: small, rat: 2}", "servers[1].rat: unknown field, did you mean rate?"),
    ("{id: small}", "{id: small, a list: 2}", "servers[1].a list: unknown field, expected one of "),
    ("rate: 4", "rate: 0", "servers[0].rate: expected a number above 0, got 0"),
    ("rate: 4", "rate: 1.2e308", "servers[0].rate: expected a number of at most 9007199254740992"),
    ("tokens: 6", "tokens: 0", "classes[0].tokens: expected a number from 1 to 10000, got 0"),
    ("tokens: 6", "tokens: 10001", "classes[0].tokens: expected a number from 1 to 10000, got 10"),
    ("servers: [big]", "servers: [huge]", "classes[0].servers: expected ids of servers (3, big, "),
    ("[small, 3]", "[3]", "servers[1]: expected every server in a class, 'small' is in none"),
    ("id: llm", "id: l m", "types[0].id: expected 1 to 63 of A-Z a-z 0-9 . _ -, got 'l m'"),
    ("on_block: queue", "on_block: queu", "on_block: expected one of overflow, queue, refuse, got"),
    ("[2, large]", "[large]", "classes[1]: expected every class in a type, '2' is in none"),
    ("discipline: fcfs", "order: least-load", "order: expected one of longest-available, least-lo"),
    ("{id: small}", "{id: small, handler: slep}", "servers[1].handler: expected sleep, spin, pyth"),
    ("http:http://gpu:9000/run", "http:http://gpu:0/run", "servers[0].handler: expected http(s):"),
    ("service_ms: 100", "kill_after_ms: 100", ONLY_OF_PROCESSES),
]


@pytest.fixture
def load(tmp_path):
    def read(text):
        path = tmp_path / "site.yaml"
        path.write_text(text, encoding="utf-8")
        return load_topology(str(path))

    return read


@pytest.mark.parametrize(("part", "bad", "expected"), BAD_PARTS)
def test_a_bad_part_gets_one_line_with_its_place(part, bad, expected, load, tmp_path):
    assert SITE.count(part) == 1
    with pytest.raises(InputError) as caught:
        load(SITE.replace(part, bad))
    assert str(caught.value).startswith(f"{tmp_path / 'site.yaml'}: clusters[0].{expected}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("classes", "[{id: c, servers: [s]}]"),
        ("types", "[{id: t, classes: [c]}]"),
        ("on_block", "refuse"),
        ("discipline", "fcfs"),
    ],
)
def test_servers_alike_have_none_of_it(field, value, load):
    with pytest.raises(InputError) as caught:
        load(f"clusters: [{{id: a, servers: 1, {field}: {value}}}]")
    assert caught.value.field == f"clusters[0].{field}"
    assert caught.value.expected == "expected only along with a list of servers"


def test_every_field_arrives(load):
    (cluster,) = load(SITE).clusters
    assert cluster == Cluster(
        id="paris",
        servers=(
            Server(id="big", rate=4, handler="http:http://gpu:9000/run"),
            Server(id="small"),
            Server(id="3"),
        ),
        classes=(
            ServerClass(id="large", servers=("big",), tokens=6),
            ServerClass(id="2", servers=("small", "3")),
        ),
        types=(
            JobType(id="llm", classes=("large",)),
            JobType(id="thumbnail", classes=("2", "large")),
        ),
        on_block="queue",
        discipline="fcfs",
        workers="process",
        service_ms=100,
    )
    assert cluster.server_count == 3
    assert cluster.pool.types == cluster.types
    assert [each.tokens for each in cluster.pool.classes] == [6, 2]


def test_servers_alone_are_a_class_each(load):
    (cluster,) = load("clusters: [{id: a, servers: [{id: 1}, {id: 2, rate: 2}]}]").clusters
    assert cluster.pool.classes == tuple(
        ServerClass(id=one, servers=(one,), tokens=1) for one in ("1", "2")
    )
    assert cluster.pool.types == (JobType(id="default", classes=("1", "2")),)
    assert (cluster.pool.on_block, cluster.pool.discipline) == ("overflow", "ps")


def test_a_server_counts_with_its_own_handler(load):
    """What a field asks of the handler is asked of those of the servers too."""
    (cluster,) = load(SITE.replace("service_ms: 100", "not_run_statuses: [404]")).clusters
    assert cluster.handlers == {
        "servers[0].handler": "http:http://gpu:9000/run",
        "handler": "sleep",
    }
    with pytest.raises(InputError, match="expected only along with an http: or proxy: handler"):
        load(
            SITE.replace("service_ms: 100", "not_run_statuses: [404]").replace(
                "http:http://gpu:9000/run", "spin"
            )
        )


def test_more_groups_of_types_than_reports_can_name_are_refused(load):
    """Each of the first 65 numbers, in binary, is a choice of classes of its own."""
    servers = ", ".join(f"{{id: s{bit}}}" for bit in range(7))
    types = [
        f"{{id: t{n}, classes: [{', '.join(f's{bit}' for bit in range(7) if n >> bit & 1)}]}}"
        for n in range(1, 66)
    ]
    text = "clusters: [{{id: a, servers: [{}], types: [{}]}}]"
    with pytest.raises(InputError) as caught:
        load(text.format(servers, ", ".join(types)))
    assert (caught.value.field, caught.value.expected) == (
        "clusters",
        "expected at most 64 groups of types with the same classes, got 65",
    )
    assert len(load(text.format(servers, ", ".join(types[:-1]))).type_groups.groups) == 64
