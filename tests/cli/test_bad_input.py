"""Bad usage and bad input: exit status 2 and one line on stderr, whichever command it is."""

from __future__ import annotations

import socket
from importlib.util import find_spec

import pytest

from spillover.cli import main

ONE = "clusters: [{id: a, servers: 1}]\n"
TWO = "clusters: [{id: a, servers: 1}, {id: b, servers: 1}]\n"

TOPOLOGIES = {
    "self link": (
        ONE + "links: [{between: [a, a]}]\n",
        "links[0].between: expected two clusters, got 'a' twice",
    ),
    "link given twice": (
        TWO + "links: [{between: [a, b]}, {between: [b, a]}]\n",
        "links[1].between: expected one link per pair, got ['a', 'b'] twice",
    ),
    "negative delay": (
        TWO + "links: [{between: [a, b], delay_ms: -1}]\n",
        "links[0].delay_ms: expected a number of at least 0, got -1",
    ),
    "unknown kind of workers": (
        "clusters: [{id: a, servers: 1, handler: 'python:m:f', workers: fiber}]\n",
        "clusters[0].workers: expected thread or process, got 'fiber'",
    ),
    "no YAML": ("clusters: [\n", "line 2: expected YAML"),
}


def one_line_of(capsys, *arguments):
    """Run the command, which fails as bad input does; what it says."""
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = ended.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert err.startswith("spillover")
    return err


@pytest.mark.parametrize(
    ("text", "complaint"), TOPOLOGIES.values(), ids=[name.replace(" ", "_") for name in TOPOLOGIES]
)
@pytest.mark.parametrize("command", ["up", "node", "sim"])
def test_faults_of_a_topology_file(command, text, complaint, tmp_path, capsys):
    """Each command that reads one names the file, the field and what was expected."""
    file = tmp_path / "topology.yaml"
    file.write_text(text)
    arguments = {
        "up": ["up", str(file)],
        "node": ["node", "--topology", str(file), "--cluster", "a"],
        "sim": ["sim", "overflow", "--topology", str(file), "--workload", "bursts"],
    }[command]
    assert one_line_of(capsys, *arguments).startswith(f"spillover: {file}: {complaint}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["sim", "overflow", "--engine", "fast"],
        ["sim", "overflow", "--engine", "fast", "--policy", "shared"],
        ["plan", "--p99-ms", "100"],
    ],
)
def test_simulations_without_unlike_servers_say_so(arguments, require, tmp_path, capsys):
    """Instead of taking them for servers that are alike."""
    require("fast" not in arguments or find_spec("numba"), "numba, from the extra `sim`")
    topology = tmp_path / "gpus.yaml"
    topology.write_text("clusters: [{id: a, servers: 1}, {id: b, servers: [{id: s}]}]")
    said = one_line_of(capsys, *arguments, "--topology", str(topology), "--workload", "bursts")
    assert said == (
        "spillover: gpus: clusters[1].servers: "
        "expected a number, got a list: this simulation knows no unlike servers\n"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nonsense"], "unknown command 'nonsense', expected one of up, node, lease, "),
        (["statsu"], "unknown command 'statsu', did you mean status?"),
        (["lease", "dmeo"], "unknown command 'dmeo', did you mean demo?"),
        (["sim", "overfow"], "unknown command 'overfow', did you mean overflow?"),
        (["--nonsense"], "unknown option --nonsense; spillover --help names those known"),
        (["--versoin"], "unknown option --versoin, did you mean --version?"),
        (["-x"], "unknown option -x; spillover --help names those known"),
        # Before what is missing: it may be missing because it is misspelled.
        (["node", "--toplogy", "t.yaml"], "unknown option --toplogy, did you mean --topology?"),
        (["up", "--drain", "3"], "unknown option --drain, did you mean --drain-timeout-s?"),
        (["up", "--polcy=paper"], "unknown option --polcy, did you mean --policy?"),
        (["up", "-policy", "paper"], "unknown option -policy, did you mean --policy?"),
        (["up", "--policy", "papr"], "--policy: invalid choice: 'papr', did you mean paper? ("),
        (["lease", "run", "--gruop", "g"], "unknown option --gruop, did you mean --group?"),
        (["up", "not-there.yaml"], "expected a built-in topology (ring5, chord5, "),
        (
            ["up", "rng5"],
            "chord20, comte8, comte11) or a YAML file, found neither; did you mean ring5?",
        ),
        (["up", "."], "expected a file, got a directory"),
        (["up", "--policy", "greedy"], "--policy: invalid choice: 'greedy'"),
        (["up", "--seed", "x"], "--seed: expected a whole number, got 'x'"),
        (
            ["up", "--drain-timeout-s", "nan"],
            "--drain-timeout-s: expected a finite number, got 'nan'",
        ),
        (["up", "ring5", "chord5"], "unrecognized arguments: chord5"),
        (["node"], "the following arguments are required: --topology, --cluster"),
        (["status"], "the following arguments are required: URL"),
        (["drain"], "the following arguments are required: URL"),
        (["drain", "http://a", "--timeout-s", "0"], "--timeout-s: expected a number above 0"),
        (["resume"], "the following arguments are required: URL"),
        (["queue", "--buffers", "5"], "the following arguments are required: --id"),
        (["queue", "wrok"], "unknown command 'wrok', did you mean work?"),
        (
            ["queue", "--id", "p1", "--visibilty-ms", "5"],
            "unknown option --visibilty-ms, did you mean --visibility-ms?",
        ),
        (["queue", "work"], "the following arguments are required: --handler, --producer"),
        (["explain", "http://a"], "the following arguments are required: ID"),
    ],
)
def test_bad_usage(arguments, complaint, capsys):
    """What was wrong is said, and where more is to be learned."""
    said = one_line_of(capsys, *arguments)
    assert complaint in said


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--topology", "nope", "--cluster", "a"], "nope: expected a built-in topology"),
        (
            ["--topology", "ring5", "--cluster", "z"],
            "--cluster: expected one of a, b, c, d, e, got 'z'",
        ),
        (
            ["--topology", "ring5", "--cluster", "a"],
            "--bind: expected HOST:PORT, since cluster a has no url",
        ),
        (
            ["--topology", "ring5", "--cluster", "a", "--bind", "127.0.0.1:0"],
            "expected a url",
        ),
        (
            ["--topology", "ring5", "--cluster", "a", "--bind", "8101"],
            "--bind: expected HOST:PORT, got '8101'",
        ),
        (
            ["--topology", "ring5", "--cluster", "a", "--bind", "127.0.0.1:70000"],
            "--bind: expected HOST:PORT, got '127.0.0.1:70000'",
        ),
        (
            ["--topology", "ring5", "--cluster", "a", "--peer-bind", "8101"],
            "--peer-bind: expected HOST:PORT, got '8101'",
        ),
        (
            ["--topology", "ring5", "--cluster", "a", "--log-format", "xml"],
            "--log-format: invalid choice: 'xml'",
        ),
        (
            ["--topology", "ring5", "--cluster", "a", "--drain-timeout-s", "-1"],
            "--drain-timeout-s: expected a number of at least 0, got '-1'",
        ),
        (
            ["--topology", "ring5", "--cluster", "a", "--seed", "1.5"],
            "--seed: expected a whole number, got '1.5'",
        ),
    ],
)
def test_bad_input_of_a_node(options, complaint, capsys):
    """A node that cannot be says why."""
    assert complaint in one_line_of(capsys, "node", *options)


def test_a_node_whose_port_is_in_use(tmp_path, capsys):
    """The address is named, and the reason."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        file = tmp_path / "one.yaml"
        file.write_text(f"clusters: [{{id: a, servers: 1, url: 'http://127.0.0.1:{port}'}}]\n")
        said = one_line_of(capsys, "node", "--topology", str(file), "--cluster", "a")
    assert f"127.0.0.1:{port} (Address already in use)" in said


def test_a_node_whose_port_for_neighbors_is_in_use(tmp_path, capsys):
    """The option is named, and the address."""
    file = tmp_path / "one.yaml"
    file.write_text("clusters: [{id: a, servers: 1}]\n")
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        options = ["--cluster", "a", "--bind", "127.0.0.1:0", "--peer-bind", address]
        said = one_line_of(capsys, "node", "--topology", str(file), *options)
    assert said.startswith("spillover: --peer-bind: expected an address that can be bound")
    assert f"{address} (Address already in use)" in said


@pytest.mark.parametrize(
    ("handler", "complaint"),
    [
        ("python:not_there:run", "cannot import 'not_there'"),
        ("python:json:not_there", "expected a function 'not_there' in module 'json'"),
        (
            "python:json:tool.not_there",
            "expected sleep, spin, python:MODULE:FUNCTION, http:URL[,URL...], proxy:URL",
        ),
    ],
)
def test_a_node_whose_handler_is_not_there(handler, complaint, tmp_path, capsys):
    """The cluster is named, the handler, and what went wrong with it."""
    file = tmp_path / "one.yaml"
    file.write_text(f"clusters: [{{id: a, servers: 1, handler: '{handler}'}}]\n")
    options = ["--topology", str(file), "--cluster", "a", "--bind", "127.0.0.1:0"]
    said = one_line_of(capsys, "node", *options)
    assert complaint in said
    assert "handler: " in said


@pytest.mark.parametrize("text", ["127.0.0.1:8101", "localhost:8101"])
def test_a_url_without_its_beginning(text, capsys):
    """What is missing is said."""
    assert one_line_of(capsys, "status", text).endswith(f", did you mean http://{text}?\n")


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "x",
            "ftp://x",
            "http://",
            "https://",
            "https://a/b",
            "http://a b",
            "http://a/b",
            "http://a?b",
        ),
        *("http://u@h", "http://a:b", "http://a:0", "http://a:99999", "http://[::1"),
    ],
)
@pytest.mark.parametrize("command", ["status", "drain", "resume"])
def test_a_url_that_is_none(command, url, capsys):
    """These take http(s)://HOST[:PORT], and say so."""
    said = one_line_of(capsys, command, url)
    assert f"URL: expected http(s)://HOST[:PORT], got {url!r}" in said


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--producer", "p1"], "--producer: expected http://HOST[:PORT]"),
        (["--at-once", "0"], "--at-once: expected a whole number of at least 1, got 0"),
        (["--max-hops", "0"], "--max-hops: expected a whole number from 1 to 1000, got 0"),
        (["--handler", "snooze"], "--handler: expected sleep, spin, python:MODULE"),
        (["--handler", "python:not_there:run"], "cannot import 'not_there'"),
        (["--handler", "http://"], "--handler: expected"),
        (["--access", "often"], "--access: invalid choice: 'often'"),
        (["--drain-timeout-s", "-1"], "--drain-timeout-s: expected a number of at least 0"),
    ],
)
def test_bad_input_of_work_on_a_queue(options, complaint, capsys):
    """Before anything is taken."""
    usual = ["queue", "work", "--handler", "sleep", "--producer", "http://127.0.0.1:1"]
    assert complaint in one_line_of(capsys, *usual, *options)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--id", "a b"], "--id: expected 1 to 63 of A-Z a-z 0-9 . _ -, got 'a b'"),
        (["--id", "a", "--peer", "b/=http://h"], "--peer: expected 1 to 63 of A-Z a-z 0-9 . _ -"),
    ],
)
def test_bad_names_of_producers(options, complaint, capsys):
    """They become parts of paths, of metrics and of files."""
    assert complaint in one_line_of(capsys, "queue", *options)


SECURE = """
name: sites
clusters:
  - {id: a, servers: 1, url: "https://127.0.0.1:18101"}
  - {id: b, servers: 1, url: "https://127.0.0.1:18102"}
links: [{between: [a, b]}]
"""


@pytest.mark.parametrize(
    ("text", "options", "complaint"),
    [
        (SECURE, [], "--tls-cert: expected a file (or SPILLOVER_TLS_CERT), since urls in "),
        (SECURE, ["--tls-cert", "x", "--tls-key", "y"], "--tls-ca: expected a file (or SPILLOVER"),
        (
            SECURE.replace("https", "http"),
            ["--tls-cert", "x"],
            "--tls-cert: expected it along with https:// urls of cluster a, those in ",
        ),
        (
            "clusters: [{id: a, servers: 1, url: 'https://h', peer_url: 'http://h:1'}]\nname: x",
            ["--tls-cert", "x", "--tls-key", "y", "--tls-ca", "z"],
            "--tls-ca: expected it along with https:// urls between nodes, those in ",
        ),
        (
            SECURE,
            ["--tls-cert", "no.crt", "--tls-key", "y", "--tls-ca", "z"],
            "no.crt: expected a file that can be read (No such file or directory)",
        ),
        (
            SECURE.replace("https", "http", 1),
            [],
            "{file}: clusters[0].url: expected https:// between all nodes or between none",
        ),
        (SECURE.replace("name: sites", "{}"), [], "{file}: name: expected a name, since certif"),
        (SECURE.replace("sites", "my sites"), [], "{file}: name: expected a name of A-Z a-z 0-9 "),
        (
            SECURE.replace("id: b", "id: A").replace("[a, b]", "[a, A]"),
            [],
            "{file}: clusters[1].id: expected ids that differ in more than case, since DNS names ",
        ),
        (SECURE.replace("id: b", "id: b.").replace("b]", "b.]"), [], "{file}: clusters[1].id: exp"),
    ],
)
def test_certificates_and_urls_that_contradict_each_other(
    text, options, complaint, tmp_path, capsys, monkeypatch
):
    for variable in ("CERT", "KEY", "CA"):
        monkeypatch.delenv(f"SPILLOVER_TLS_{variable}", raising=False)
    file = tmp_path / "sites.yaml"
    file.write_text(text.replace("{}\n", "\n"))
    said = one_line_of(capsys, "node", "--topology", str(file), "--cluster", "a", *options)
    assert said.startswith("spillover: " + complaint.replace("{file}", str(file)))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            ["--tls-cert", "x"],
            "--tls-key: expected a file (or SPILLOVER_TLS_KEY) along with --",
        ),
        (
            ["--tls-key", "x"],
            "--tls-cert: expected a file (or SPILLOVER_TLS_CERT) along with ",
        ),
        (
            ["--tls-cert", "x", "--tls-key", "y", "--peer", "p2=https://h"],
            "--tls-ca: expected a file (or SPILLOVER_TLS_CA) along with --tls-cert, --tls-key",
        ),
        (
            ["--tls-cert", "x", "--tls-key", "y", "--tls-ca", "z", "--peer", "p2=http://h"],
            "--peer: expected https:// where producers have certificates, got 'http://h'",
        ),
        (
            ["--tls-cert", "x", "--tls-key", "y", "--url", "http://h"],
            "--url: expected https:// where producers have certificates, got 'http://h'",
        ),
        (
            ["--tls-cert", "no.crt", "--tls-key", "y"],
            "no.crt: expected a file that can be read (No such file or directory)",
        ),
    ],
)
def test_certificates_of_producers_that_do_not_fit(options, complaint, capsys, monkeypatch):
    for variable in ("CERT", "KEY", "CA"):
        monkeypatch.delenv(f"SPILLOVER_TLS_{variable}", raising=False)
    said = one_line_of(capsys, "queue", "--id", "p1", *options)
    assert said.startswith("spillover: " + complaint)


def test_cas_that_are_none_are_told_by_each_command_that_calls(tmp_path, capsys):
    """Also where nothing is called over TLS yet: it was meant to be of use."""
    empty = tmp_path / "empty"
    empty.touch()
    for file, words in (("", "--ca-file: expected a file, got ''"), (empty, "an empty file")):
        for url in ("https://127.0.0.1:1", "http://127.0.0.1:1"):
            assert words in one_line_of(capsys, "status", url, "--ca-file", str(file))
