"""What is to be done with a deployment that was written is said line by line, and no more."""

from __future__ import annotations

import importlib.util
import json

import pytest

from spillover.cli import main

NEAR = 'handler: "http:http://127.0.0.1:9000/x"'
FAR = 'handler: "http:http://h:9000/x"'
TWO = """\
name: two
clusters: [{id: a, servers: 1, %s}, {id: b, servers: 1%s}]
links: [{between: [a, b]}]
"""
PYTHON = ', handler: "python:jobs:run"'
DASK = ', handler: "dask:tcp://h:8786:jobs:run"'
LOOPBACK = "clusters[0].handler: 127.0.0.1 is the container itself there, not this machine"


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """`said("kubernetes", NEAR, PYTHON)`: the lines, of files in the working directory."""
    monkeypatch.chdir(tmp_path)

    def lines(kind, first, second, *words):
        (tmp_path / "two.yaml").write_text(TWO % (first, second))
        assert main(["topology", kind, "two.yaml", "--out", "out/it", *words]) == 0
        out, err = capsys.readouterr()
        assert ("--json" in words) == bool(out)
        return err.splitlines()

    return lines


def test_of_manifests_only_how_to_start_them(said):
    assert said("kubernetes", FAR, "") == [
        "7 files for 2 clusters, first out/it/kustomization.yaml",
        "start it: kubectl apply -k out/it",
    ]


def test_of_manifests_what_they_need(said):
    """Modules of handlers, an image that has what they call, certificates, API tokens."""
    first, *lines, last = said(
        "kubernetes", NEAR, PYTHON, *("--tls", "--tokens", "--queue", "1", "--image", "mine")
    )
    new = "  spillover token new --append tokens.yaml --name"
    assert lines == [
        "python handlers: the image must hold their modules, in its working directory",
        '--tls: the image mine must be built with EXTRAS="leases tls"',
        ("certificates: cert-manager, or spillover tls init --topology out/it/tls-topology.yaml"),
        (
            "each site and producer has its own, with tls.crt, tls.key and ca.crt: kubectl -n "
            "spillover create secret generic tls-ID --from-file=certificates/ID"
        ),
        "API tokens, with those of your clients:",
        f"{new} prometheus --role read > prometheus",
        f"{new} producers --role submit --tenant queue > producers",
        (
            "  kubectl -n spillover create secret generic api-tokens --from-file=tokens.yaml "
            "--from-file=producers"
        ),
        LOOPBACK,
    ]
    assert (first[:23], last) == ("9 files for 2 clusters,", "start it: kubectl apply -k out/it")
    lines = said("kubernetes", FAR, DASK, "--tokens", "--force", "--json")
    assert lines[1] == (
        'dask handlers: the image spillover:local must be built with EXTRAS="leases dask"'
    )
    assert not [line for line in lines if "producers" in line]


def test_of_a_compose_file_how_to_start_it(said):
    """Built anew where an image that is there may lack something."""
    assert said("compose", FAR, "") == [
        "8 files for 2 clusters, first out/it",
        "start it: docker compose -f out/it up --wait",
    ]
    assert said("compose", NEAR, DASK, "--force")[1:] == [
        LOOPBACK,
        "start it: docker compose -f out/it up --build --wait",
    ]


@pytest.mark.parametrize(("count", "is_told"), [(26, False), (27, True)])
def test_networks_that_docker_may_not_have_are_told_of(count, is_told, tmp_path, capsys):
    """One a site, and two more."""
    file = tmp_path / "many.yaml"
    sites = "".join(f"- {{id: c{number}, servers: 1}}\n" for number in range(count))
    file.write_text(f"name: many\nclusters:\n{sites}links: []\n")
    assert main(["topology", "compose", str(file), "--out", str(tmp_path / "c.yaml")]) == 0
    assert (f"{count} sites are as many networks" in capsys.readouterr().err) is is_told


def test_of_a_compose_file_where_its_certificates_are(said, require):
    require(importlib.util.find_spec("cryptography"), "cryptography, from the extra `tls`")
    certificates, _, start = said("compose", FAR, "", "--tls")
    assert certificates == (
        "certificates are in out/certificates, `spillover tls renew` renews them"
    )
    assert start == (
        'start it: SPILLOVER_USER="$(id -u):$(id -g)" docker compose -f out/it up --build --wait'
    )


def test_the_least_memory_is_enough(said, tmp_path, capsys):
    assert len(said("compose", FAR, "", "--memory-mb", "96")) == 2
    assert main(["topology", "compose", str(tmp_path / "two.yaml"), "--memory-mb", "95"]) == 2
    assert capsys.readouterr().err == "spillover: --memory-mb: expected at least 96, got 95\n"
    for out in ("out", "/"):
        words = ["topology", "compose", str(tmp_path / "two.yaml"), "--out", out]
        assert main(words) == 2
        told = f"spillover: --out: expected a file to write, got the directory {out}\n"
        assert capsys.readouterr().err == told


def test_where_all_of_it_is_reached_is_one_object(tmp_path, monkeypatch, capsys):
    """As a set of urls of this machine, each with a port of its own."""
    monkeypatch.chdir(tmp_path)
    door = ', handler: "proxy:http://h:9", proxy_url: "http://127.0.0.1:8301"'
    (tmp_path / "two.yaml").write_text(TWO % (FAR, door))
    words = ("--first-port", "8401", "--out", "compose.yaml", "--json")
    assert main(["topology", "compose", "two.yaml", *words]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told["clusters"] == {"a": "http://127.0.0.1:8401", "b": "http://127.0.0.1:8402"}
    assert told["proxies"] == {"b": "http://127.0.0.1:8301"}
    assert f"clients of the service behind cluster b come in at {told['proxies']['b']}" in err
    others = [told[name] for name in ("prometheus", "grafana", "redis")]
    assert [url.partition("://")[0] for url in others] == ["http", "http", "redis"]
    assert others[2].endswith("/0")
    urls = [*told["clusters"].values(), *told["proxies"].values(), *others]
    assert len({url.rpartition(":")[2].partition("/")[0] for url in urls}) == len(urls)
    assert told["topology"] == "two"
    assert "compose.yaml" in told["files"]
