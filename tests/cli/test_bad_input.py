"""Bad usage and bad input: exit status 2 and one line on stderr, whichever command it is."""

import socket
from importlib.util import find_spec

import pytest

from spillover.live.queue.wire import PRODUCERS_MAX

NODE = ("node", "--topology", "ring5", "--cluster", "a")


@pytest.fixture(autouse=True)
def _no_certificates_of_ones_own(monkeypatch):
    for variable in ("CERT", "KEY", "CA"):
        monkeypatch.delenv(f"SPILLOVER_TLS_{variable}", raising=False)


@pytest.mark.parametrize("command", ["up", "node", "sim"])
def test_faults_of_a_topology_file(command, tmp_path, refused):
    """Each command that reads one names the file and what was expected."""
    file = tmp_path / "topology.yaml"
    file.write_text("clusters: [\n")
    words = {
        "up": ["up", file],
        "node": ["node", "--topology", file, "--cluster", "a"],
        "sim": ["sim", "overflow", "--topology", file, "--workload", "bursts"],
    }[command]
    assert refused(*words).startswith(f"{file}: line 2: expected YAML")


@pytest.mark.parametrize(
    "words",
    [
        ["sim", "overflow", "--engine", "fast"],
        ["sim", "overflow", "--engine", "fast", "--policy", "shared"],
        ["plan", "--p99-ms", "100"],
    ],
)
def test_simulations_without_unlike_servers_say_so(words, require, tmp_path, refused):
    """Instead of taking them for servers that are alike."""
    require("fast" not in words or find_spec("numba"), "numba, from the extra `sim`")
    topology = tmp_path / "gpus.yaml"
    topology.write_text("clusters: [{id: a, servers: 1}, {id: b, servers: [{id: s}]}]")
    said = refused(*words, "--topology", topology, "--workload", "bursts")
    assert said.startswith("gpus: clusters[1].servers: expected a number, got a list: this simul")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("nonsense", "unknown command 'nonsense', expected one of up, node, lease, "),
        ("lease dmeo", "unknown command 'dmeo', did you mean demo?"),
        ("queue wrok", "unknown command 'wrok', did you mean work?"),
        ("--versoin", "unknown option --versoin, did you mean --version?"),
        # Before what is missing: it may be missing because it is misspelled.
        ("node --toplogy t.yaml", "unknown option --toplogy, did you mean --topology?"),
        ("up -policy paper", "unknown option -policy, did you mean --policy?"),
        ("up --policy papr", "--policy: invalid choice: 'papr', did you mean paper? ("),
        ("lease run --gruop g", "unknown option --gruop, did you mean --group?"),
        ("up not-there.yaml", "expected a built-in topology (ring5, chord5, "),
        ("up rng5", "or a YAML file, found neither; did you mean ring5?"),
        ("up .", "expected a file, got a directory"),
        ("up --seed x", "--seed: expected a whole number, got 'x'"),
        ("up --drain-timeout-s nan", "--drain-timeout-s: expected a finite number, got 'nan'"),
        ("up --drain-timeout-s -1", "--drain-timeout-s: expected a number of at least 0"),
        ("up --port 65536", "--port: expected a whole number from 1 to 65535"),
        ("up --allow-origin h/path", "--allow-origin: expected http(s)://HOST[:PORT] or *"),
        ("up ring5 chord5", "unrecognized arguments: chord5"),
        ("node", "the following arguments are required: --topology, --cluster"),
        ("drain http://a --timeout-s 0", "--timeout-s: expected a number above 0"),
        ("queue --buffers 5", "the following arguments are required: --id"),
        ("queue --id p1 --visibilty-ms 5", "unknown option --visibilty-ms, did you mean --visib"),
        ("queue work", "the following arguments are required: --handler, --producer"),
        ("plan --policy isolated", "--policy: invalid choice: 'isolated'"),
        ("tls init --days 0", "--days: expected a whole number from 1 to 3650"),
        ("tls renew --ca --drop-old-ca", "not allowed with"),
    ],
)
def test_bad_usage(words, complaint, refused):
    assert complaint in refused(*words.split())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--topology nope", "nope: expected a built-in topology"),
        ("--cluster z", "--cluster: expected one of a, b, c, d, e, got 'z'"),
        ("", "--bind: expected HOST:PORT, since cluster a has no url"),
        ("--bind 127.0.0.1:0", "expected a url"),
        ("--bind 8101", "--bind: expected HOST:PORT, got '8101'"),
        ("--peer-bind 8101", "--peer-bind: expected HOST:PORT, got '8101'"),
        ("--log-format xml", "--log-format: invalid choice: 'xml'"),
        ("--processes 0", "--processes: expected a whole number from 1 to 16, got '0'"),
    ],
)
def test_bad_input_of_a_node(options, complaint, refused):
    assert complaint in refused(*NODE, *options.split())


def test_a_node_whose_port_is_in_use(tmp_path, refused):
    file = tmp_path / "one.yaml"
    node = ("node", "--topology", file, "--cluster", "a")
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        file.write_text(f"clusters: [{{id: a, servers: 1, url: 'http://{address}'}}]\n")
        of_its_url = refused(*node)
        file.write_text("clusters: [{id: a, servers: 1}]\n")
        of_neighbors = refused(*node, "--bind", "127.0.0.1:0", "--peer-bind", address)
    assert of_neighbors.startswith("--peer-bind: expected an address that can be bound")
    for said in (of_its_url, of_neighbors):
        assert f"{address} (Address already in use)" in said


@pytest.mark.parametrize(
    ("handler", "complaint"),
    [
        ("python:not_there:run", "cannot import 'not_there'"),
        ("python:json:not_there", "expected a function 'not_there' in module 'json'"),
        ("python:json:tool.not_there", "expected sleep, spin, python:MODULE:FUNCTION, http:URL"),
    ],
)
def test_a_node_whose_handler_is_not_there(handler, complaint, tmp_path, refused):
    file = tmp_path / "one.yaml"
    file.write_text(f"clusters: [{{id: a, servers: 1, handler: '{handler}'}}]\n")
    said = refused("node", "--topology", file, "--cluster", "a", "--bind", "127.0.0.1:0")
    assert complaint in said
    assert "handler: " in said


def test_a_url_that_is_none(refused):
    """And what is missing where only its beginning is."""
    for url in ("", "x", "ftp://x", "http://", "https://a/b", "http://a b", "http://a?b"):
        assert f"URL: expected http(s)://HOST[:PORT], got {url!r}" in refused("status", url)
    for url in ("http://u@h", "http://a:b", "http://a:0", "http://a:99999", "http://[::1"):
        assert f"URL: expected http(s)://HOST[:PORT], got {url!r}" in refused("drain", url)
    assert refused("resume", "h:8101").endswith(", did you mean http://h:8101?\n")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--producer p1", "--producer: expected http://HOST[:PORT]"),
        ("--at-once 0", "--at-once: expected a whole number of at least 1, got 0"),
        ("--max-hops 0", "--max-hops: expected a whole number from 1 to 1000, got 0"),
        ("--handler snooze", "--handler: expected sleep, spin, python:MODULE"),
        ("--handler python:not_there:run", "cannot import 'not_there'"),
        ("--access often", "--access: invalid choice: 'often'"),
    ],
)
def test_bad_input_of_work_on_a_queue(options, complaint, refused):
    usual = ["queue", "work", "--handler", "sleep", "--producer", "http://127.0.0.1:1"]
    assert complaint in refused(*usual, *options.split())


MANY = [f"--peer q{number}=http://h:{number}" for number in range(1, PRODUCERS_MAX + 1)]
OWN = "--tls-cert x --tls-key y"
ALL = f"{OWN} --tls-ca z"
HTTPS = "expected https:// where producers have certificates, got 'http://h'"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--id a/b", "--id: expected 1 to 63 of A-Z a-z 0-9 . _ -, got 'a/b'"),
        ("--peer b/=http://h", "--peer: expected 1 to 63 of A-Z a-z 0-9 . _ -, got 'b/'"),
        ("--peer a=http://h:1 --peer a=http://h:2", "--peer: expected ids that differ,"),
        ("--peer a=http://h:1 --peer b=http://h:1", "--peer: expected urls that differ, got 'http"),
        ("--peer a=h:1", "--peer: expected ID=http(s)://HOST[:PORT], got 'a=h:1'"),
        (" ".join(MANY), f"--peer: expected fewer than {PRODUCERS_MAX} peers, got {PRODUCERS_MAX}"),
        ("--url h:1", "--url: expected http(s)://HOST[:PORT], got 'h:1'"),
        ("--buffers 0", "--buffers: expected a number of at least 1, got 0"),
        ("--deliveries-max 0", "--deliveries-max: expected a number of at least 1, got 0"),
        ("--object-limit-bytes 0", "--object-limit-bytes: expected a number of at least 1, got 0"),
        ("--held-limit-bytes 0", "--held-limit-bytes: expected a number of at least 1, got 0"),
        ("--tls-cert x", "--tls-key: expected a file (or SPILLOVER_TLS_KEY) along with --"),
        ("--tls-key x", "--tls-cert: expected a file (or SPILLOVER_TLS_CERT) along with "),
        (f"{OWN} --peer p2=https://h", "--tls-ca: expected a file (or SPILLOVER_TLS_CA) along "),
        (f"{ALL} --peer p2=http://h", f"--peer: {HTTPS}"),
        (f"{OWN} --peer p1=http://h", f"--peer: {HTTPS}"),
        (f"{OWN} --url http://h", f"--url: {HTTPS}"),
        ("--tls-cert no.crt --tls-key y", "no.crt: expected a file that can be read (No such "),
    ],
)
def test_a_producer_that_cannot_be(options, complaint, refused):
    """Its names become parts of paths, of metrics and of files."""
    assert refused("queue", "--id", "p1", *options.split()).startswith(complaint)


SITES = """
name: sites
clusters:
  - {id: a, servers: 1, url: "https://127.0.0.1:18101"}
  - {id: b, servers: 1, url: "https://127.0.0.1:18102"}
links: [{between: [a, b]}]
"""
PLAIN = SITES.replace("https", "http")
WITHOUT_A_NAME = PLAIN.replace("name: sites", "")
FOR_NEIGHBORS = "clusters: [{id: a, servers: 1, url: 'https://h', peer_url: 'http://h:1'}]\nname: x"
FOR_A_SERVICE = (
    "clusters: [{id: a, servers: 1, url: 'http://h', handler: 'proxy:http://h', "
    "proxy_url: 'https://h:1'}]\nname: x"
)


@pytest.mark.parametrize(
    ("text", "options", "complaint"),
    [
        (SITES, "", "--tls-cert: expected a file (or SPILLOVER_TLS_CERT), since urls in "),
        (SITES, "--tls-cert x", "--tls-key: expected a file (or SPILLOVER_TLS_KEY), since urls in"),
        (SITES, OWN, "--tls-ca: expected a file (or SPILLOVER_TLS_CA)"),
        (PLAIN, OWN, "--tls-cert: expected it along with https:// urls of cluster a, those in "),
        (FOR_NEIGHBORS, ALL, "--tls-ca: expected it along with https:// urls between nodes, "),
        (FOR_A_SERVICE, "", "--tls-cert: expected a file (or SPILLOVER_TLS_CERT), since urls in "),
        (SITES, ALL.replace("x", "no.crt"), "no.crt: expected a file that can be read (No such "),
        (PLAIN, "--proxy-bind 127.0.0.1:0", "--proxy-bind: expected a proxy: handler, cluster a "),
        (PLAIN, "--config-redis 127.0.0.1:1", "--config-redis: expected redis://"),
        (WITHOUT_A_NAME, "--config-redis redis://h/0", "--config-redis: expected a topology with "),
    ],
)
def test_options_and_topologies_that_contradict_each_other(
    text, options, complaint, tmp_path, refused
):
    file = tmp_path / "sites.yaml"
    file.write_text(text)
    said = refused("node", "--topology", file, "--cluster", "a", *options.split())
    assert said.startswith(complaint)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("https://127.0.0.1:18101", "http://h", "clusters[0].url: expected https:// between all"),
        ("name: sites", "", "name: expected a name, since certif"),
        ("name: sites", "name: my sites", "name: expected a name of A-Z a-z 0-9 "),
        ("b", "A", "clusters[1].id: expected ids that differ in more than case, since DNS names "),
        ("b", "b.", "clusters[1].id: exp"),
    ],
)
def test_sites_that_cannot_have_certificates(old, new, complaint, tmp_path, refused):
    text = SITES.replace("id: b", f"id: {new}").replace("b]", f"{new}]") if old == "b" else SITES
    file = tmp_path / "sites.yaml"
    file.write_text(text if old == "b" else text.replace(old, new))
    assert refused("node", "--topology", file, "--cluster", "a").startswith(f"{file}: {complaint}")


@pytest.mark.parametrize(
    ("cluster", "options", "complaint"),
    [
        ("url: 'http://h'", "--tls", "url: expected https:// or none with --tls, g"),
        ("peer_url: 'http://h'", "--tls", "peer_url: expected https:// or none with --tls"),
        ("url: 'https://h'", "", "url: expected http:// or none without --tls, got"),
        ("peer_url: 'https://h'", "", "peer_url: expected http:// or none without"),
        (
            "handler: 'proxy:http://h', proxy_url: 'https://h'",
            "",
            "proxy_url: expected http:// or none without --tls",
        ),
    ],
)
def test_urls_that_are_not_as_the_testbed_is(cluster, options, complaint, tmp_path, refused):
    file = tmp_path / "sites.yaml"
    file.write_text(f"name: x\nclusters: [{{id: a, servers: 1, {cluster}}}]\n")
    said = refused("up", file, *options.split())
    assert said.startswith(f"{file}: clusters[0].{complaint}")


def test_options_of_up_that_mean_nothing_there(tmp_path, refused):
    file = tmp_path / "sites.yaml"
    file.write_text("clusters: [{id: a, servers: 1, url: 'http://127.0.0.1:1'}]\n")
    said = refused("up", file, "--port", 9000)
    assert said.startswith("--port: expected a topology that leaves ports open, ")
    assert refused("up", "--store", "x").startswith("--store: expected --queue N beside it")


def test_cas_that_are_none_are_told_by_each_command_that_calls(tmp_path, refused):
    """Also where nothing is called over TLS yet: it was meant to be of use."""
    empty = tmp_path / "empty"
    empty.touch()
    for file, words in (("", "--ca-file: expected a file, got ''"), (empty, "an empty file")):
        for url in ("https://127.0.0.1:1", "http://127.0.0.1:1"):
            assert words in refused("status", url, "--ca-file", file)
