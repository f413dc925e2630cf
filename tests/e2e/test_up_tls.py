"""`up --tls`: a testbed in which nodes prove who they are, and clients of all kinds believe it; and
a node whose clients' doors alone are encrypted."""

import asyncio
import json
import signal
import ssl
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from spillover.cli import main
from spillover.live.http1.client import HttpClient
from spillover.live.tls.contexts import trusting_context
from spillover.model.certified_names import certified_name
from support.certificates import Authority, put
from support.commands import LOADGEN, SPILLOVER
from support.ports import free_ports, free_row
from support.waiting import until

TOPOLOGY = """
name: sites
clusters:
  - {id: a, servers: 2, service_ms: 20}
  - {id: b, servers: 2, service_ms: 20}
links: [{between: [a, b]}]
"""


@pytest.fixture(scope="module")
def bed(module_start, tmp_path_factory):
    """A testbed with certificates; its line of --json, and itself."""
    file = tmp_path_factory.mktemp("tls") / "sites.yaml"
    file.write_text(TOPOLOGY)
    port = free_row(3)
    running = module_start(*SPILLOVER, "up", str(file), "--tls", "--json", "--port", str(port))
    running.ready()
    return json.loads(running.stdout), running


@pytest.fixture(scope="module")
def ca_file(bed):
    return bed[0]["ca_file"]


@pytest.fixture(scope="module")
def urls(bed):
    return bed[0]["clusters"]


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    """The option --ca-file is kept in it."""
    monkeypatch.setenv("SPILLOVER_CA_FILE", "")


def test_load_goes_over_from_one_to_the_other(bed, start, urls, ca_file):
    """Half of what one is given goes to the other, and all comes back."""
    assert {url.partition(":")[0] for url in urls.values()} == {"https"}
    options = ("--workload", "poisson", "--rate", "150", "--duration-s", "1", "--seed", "1")
    target = ("--target", f"a={urls['a']}", "--ca-file", ca_file, "--json")
    result = start(*LOADGEN, "run", *target, *options).result()
    assert result["outcomes"]["ok"] == result["sent"] > 100
    assert result["forwarded_share"] > 0.1


def test_operators_believe_it_too(urls, ca_file, monkeypatch, capsys):
    assert main(["status", urls["a"]]) == 1
    assert "its certificate is not believed" in capsys.readouterr().err
    with monkeypatch.context() as patched:
        patched.setenv("SPILLOVER_CA_FILE", ca_file)
        assert main(["status", urls["a"], "--json"]) == 0
        assert set(json.loads(capsys.readouterr().out)["clusters"]) == set(urls)
    assert main(["config", "get", urls["a"], "--ca-file", ca_file]) == 0
    assert "https://" in capsys.readouterr().out
    assert main(["tls", "check", urls["a"], "--ca-file", ca_file, "--json"]) == 0
    assert "a.sites.spillover" in capsys.readouterr().out


def test_a_hangup_has_new_certificates_shown(bed, urls, ca_file):
    """What is wrong with them is told before, and changes nothing."""

    def shown():
        return [ssl.get_server_certificate(("127.0.0.1", port)) for port in ports]

    ports = [int(url.rpartition(":")[2]) for url in urls.values()]
    nodes, before = bed[1].nodes(), shown()
    of_a, of_b = sorted(Path(ca_file).parent.rglob("tls.key"))
    log = Path(bed[0]["logs"]["b"])
    of_b.write_bytes(of_a.read_bytes())
    bed[1].process.send_signal(signal.SIGHUP)
    until(lambda: "certificates stay as they were" in log.read_text())
    assert f"{of_b}: expected the key of the certificate in " in log.read_text()
    assert shown() == before
    assert main(["tls", "renew", "--out", str(Path(ca_file).parent)]) == 0
    bed[1].process.send_signal(signal.SIGHUP)
    until(lambda: not set(before) & set(shown()))
    assert bed[1].nodes() == nodes


def test_keys_are_the_owners_alone(bed, ca_file):
    """And in no command line."""
    keys = list(Path(ca_file).parent.rglob("*.key"))
    assert len(keys) == 3
    assert {key.stat().st_mode & 0o077 for key in keys} == {0}
    assert not [command for command in bed[1].look().values() if ".key" in command]


def test_a_cluster_that_is_added_gets_a_certificate(bed, urls, ca_file, tmp_path, capsys):
    ca = ("--ca-file", ca_file)
    assert main(["config", "get", urls["a"], *ca]) == 0
    port = int(urls["b"].rpartition(":")[2]) + 1
    lines = capsys.readouterr().out.replace(
        "links:",
        f"- {{id: c, servers: 2, url: 'https://127.0.0.1:{port}'}}\nlinks:\n- between: [a, c]",
    )
    file = tmp_path / "wanted.yaml"
    file.write_text(lines)
    assert main(["config", "set", urls["a"], str(file), *ca]) == 0
    capsys.readouterr()

    def hears_all():
        assert main(["status", urls["a"], "--json", *ca]) == 0
        told = json.loads(capsys.readouterr().out)["clusters"].get("c", {})
        return [one["alive"] for one in told.get("neighbors", [])] == [True]

    until(hears_all)


def test_only_clients_doors_are_encrypted(tmp_path, start):
    """That of a service too; between nodes, at one site, nothing is."""
    doors, authority = free_ports(3), Authority("own")
    files = put(tmp_path, "a", authority.sign(certified_name("a", "site")))
    topology = tmp_path / "site.yaml"
    topology.write_text(
        f"name: site\nclusters:\n  - {{id: a, servers: 1, handler: 'proxy:http://127.0.0.1:9',"
        f" url: 'https://127.0.0.1:{doors[0]}', peer_url: 'http://127.0.0.1:{doors[1]}',"
        f" proxy_url: 'https://127.0.0.1:{doors[2]}'}}\n"
    )
    command = [*SPILLOVER, "node", "--topology", str(topology), "--cluster", "a"]
    node = start(*command, "--tls-cert", files.cert, "--tls-key", files.key)
    until(lambda: "node listens" in node.stderr, 30.0)
    context = trusting_context(None)
    context.load_verify_locations(cadata=authority.pem.decode())

    async def statuses():
        found = []
        for port, path in ((doors[0], "/healthz"), (doors[2], "/of/the/service")):
            client = HttpClient(
                f"https://127.0.0.1:{port}", tls=context, server_name=certified_name("a", "site")
            )
            found.append((await client.request("GET", path, timeout_s=9.0)).status)
            await client.close()
        return found

    assert asyncio.run(statuses()) == [200, 503]
