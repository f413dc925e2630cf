"""What options of `spillover topology` come to in the files, and what is said beside them."""

from __future__ import annotations

import json

import pytest
import yaml

from spillover.cli import main

SITE = "clusters: [{id: a, servers: 2, handler: 'python:m:f'}, {id: b, servers: 2}]\n"


@pytest.fixture
def write(tmp_path, capsys, monkeypatch):
    """`write("compose", "--cpus", "2")`: what is said on stdout and stderr, in `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sites.yaml").write_text(SITE)

    def run(kind, *options):
        assert main(["topology", kind, "sites.yaml", *options]) == 0
        return capsys.readouterr()

    return run


SIZED = ("--cpus", "2.5", "--memory-mb", "300", "--image", "mine:1")


def test_a_site_is_as_large_as_was_said(write, tmp_path):
    write("compose", *SIZED, "--build", "./src", "--code", "./mine")
    compose = yaml.safe_load((tmp_path / "compose.yaml").read_text())
    node = compose["services"]["node-a"]
    assert (node["cpus"], node["mem_limit"], node["image"]) == (2.5, "300m", "mine:1")
    assert node["build"]["context"] == "./src"
    assert "./mine:/work:ro" in node["volumes"]
    write("kubernetes", *SIZED)
    (pod,) = [
        one["spec"]["template"]["spec"]
        for one in yaml.safe_load_all((tmp_path / "kubernetes" / "site-a.yaml").read_text())
        if one["kind"] == "StatefulSet"
    ]
    (container,) = pod["containers"]
    assert container["image"] == "mine:1"
    assert container["resources"]["limits"] == {"cpu": "2500m", "memory": "300Mi"}


def test_what_compose_publishes_is_told(write):
    """From the first port on, and where to begin."""
    told = write("compose", "--first-port", "1", "--json")
    assert json.loads(told.out) == {
        "topology": "sites",
        "clusters": {"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:2"},
        "proxies": {},
        "prometheus": "http://127.0.0.1:9090",
        "grafana": "http://127.0.0.1:3000",
        "redis": "redis://127.0.0.1:16379/0",
        "files": json.loads(told.out)["files"],
    }
    files = len(json.loads(told.out)["files"])
    assert told.err.splitlines() == [
        f"{files} files for 2 clusters, first compose.yaml",
        "start it: docker compose -f compose.yaml up --wait",
    ]


def test_manifests_of_what_is_not_asked_for_any_more_go(write, tmp_path):
    """And what the image and the Secret must hold is said."""
    told = write("kubernetes", "--queue", "2", "--tokens", "--json")
    with_queue = {path.name for path in (tmp_path / "kubernetes").iterdir()}
    assert json.loads(told.out)["clusters"] == ["a", "b"]
    files = len(with_queue)
    said = told.err.splitlines()
    assert said[0].startswith(f"{files} files for 2 clusters, first kubernetes/")
    new = "  spillover token new --append tokens.yaml"
    assert said[1:] == [
        "python handlers: the image must hold their modules, in its working directory",
        "API tokens, with those of your clients:",
        f"{new} --name prometheus --role read > prometheus",
        f"{new} --name producers --role submit --tenant queue > producers",
        (
            "  kubectl -n spillover create secret generic api-tokens --from-file=tokens.yaml "
            "--from-file=producers"
        ),
        "start it: kubectl apply -k kubernetes",
    ]
    said = write("kubernetes", "--tokens").err
    assert "producers" not in said
    without = {path.name for path in (tmp_path / "kubernetes").iterdir()}
    assert len(with_queue - without) == 1
    assert without < with_queue
