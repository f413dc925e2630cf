"""`spillover up --queue`, and operators' commands at producers."""

from __future__ import annotations

import json
import os
import signal

import pytest

from spillover.cli import main
from spillover.client import Rejected, produce
from support.commands import SPILLOVER
from support.queue_service import Producer, fetched, until


@pytest.fixture
def told(capsys, monkeypatch):
    """`told(*words)`: what a command says that ends well, in this process; of another status, its
    one line."""
    monkeypatch.delenv("SPILLOVER_TOKEN", raising=False)
    monkeypatch.setenv("SPILLOVER_CA_FILE", "")

    def run(*words: str, status: int = 0) -> str:
        capsys.readouterr()
        assert main(list(words)) == status
        out, err = capsys.readouterr()
        assert status == 0 or err.count("\n") == 1
        return out if status == 0 else err

    return run


def test_producers_that_know_each_other_and_how_operators_see_them(start, told, tmp_path) -> None:
    bed = start(*SPILLOVER, "up", "--queue", "2", "--json", "--store", str(tmp_path))
    until(lambda: bed.stdout.endswith("\n") or bed.process.poll() is not None)
    ready = json.loads(bed.stdout)
    assert list(ready["producers"]) == ["p1", "p2"]
    first, second = (Producer(url) for url in ready["producers"].values())
    assert second.put(b"x").status == 201
    pointed = first.take(probe_id="mine", access={"p2": 1.0}, max_hops=2)
    body, base, grant = fetched(pointed)
    assert (body, base) == (b"x", second.url)
    shown = told("status", first.url)
    assert [line.split()[0] for line in shown.splitlines()] == ["producer", "p1", "p2"]
    assert "on disk" in shown
    states = json.loads(told("status", first.url, "--json"))["producers"]
    assert states["p2"]["granted"] == 1
    assert "answered with an object of p2" in told("explain", first.url, "mine")
    assert "fetched by its consumer" in told("explain", second.url, "p2-1")
    second.tell(grant, "ack")
    assert "producer p2 is drained" in told("drain", second.url)
    assert "producer p2 takes objects" in told("resume", second.url)
    told("explain", first.url, "nobody", status=1)
    assert bed.end(signal.SIGTERM) == 0
    assert not bed.left()


WHEREABOUTS = """
import os
from pathlib import Path

def tell(payload):
    Path("parent").write_text(str(os.getppid()))
"""
"""Of a handler: whose child the process is in which it runs."""


def test_producers_with_api_tokens_and_certificates(start, told, tmp_path) -> None:
    """They find each other's objects, and a hangup ends nothing. Who believes no certificate, or
    shows no token, is told so in a line; who works does both."""
    pytest.importorskip("cryptography")
    tokens = tmp_path / "tokens.yaml"
    secrets = {}
    for name, *roles in (("worker", "submit", "read"), ("alice", "operate")):
        words = [word for role in roles for word in ("--role", role)]
        words += ["--append", str(tokens), "--name", name, "--tenant", "any"]
        secrets[name] = tmp_path / name
        secrets[name].write_text(told("token", "new", *words))
    bed = start(*SPILLOVER, "up", "--queue", "2", "--tls", "--json", "--tokens", str(tokens))
    until(lambda: bed.stdout.endswith("\n") or bed.process.poll() is not None)
    ready = json.loads(bed.stdout)
    first, second = ready["producers"].values()
    working = ("queue", "work", "--producer", first)
    sleeping = (*working, "--handler", "sleep")
    assert "its certificate is not believed" in told(*sleeping, status=1)
    trusting = ("--ca-file", ready["ca_file"])
    shown = {name: ("--token-file", str(file), *trusting) for name, file in secrets.items()}
    secret = secrets["worker"].read_text().strip()
    with (
        produce(second, ca_file=ready["ca_file"]) as queue,
        pytest.raises(Rejected, match="unauthenticated"),
    ):
        queue.put(b"{}")
    with produce(second, ca_file=ready["ca_file"], token=secret) as queue:
        queue.put(b"{}", content_type="application/json")
    bed.process.send_signal(signal.SIGHUP)

    def states() -> dict[str, dict[str, int]]:
        shown_by = told("status", first, "--json", *shown["alice"])
        found: dict[str, dict[str, int]] = json.loads(shown_by)["producers"]
        return found

    assert [states()[name]["buffered"] for name in ("p1", "p2")] == [0, 1]
    refused = told(*sleeping, *trusting, status=1)
    assert "401 unauthenticated expected an API token" in refused
    (tmp_path / "whereabouts.py").write_text(WHEREABOUTS)
    handler = ("--handler", "python:whereabouts:tell", "--workers", "process")
    worker = start(*SPILLOVER, *working, *handler, *shown["worker"], cwd=tmp_path)
    until(lambda: states()["p2"]["acknowledged"] == 1)
    assert (tmp_path / "parent").read_text() == str(worker.process.pid)
    assert worker.end(signal.SIGTERM) == 0
    assert "producer p2 is drained" in told("drain", second, *shown["alice"])
    # One that dies is no end that was asked for, and all the others end with it.
    (died,) = [pid for pid, words in bed.look().items() if "--id p2 " in words]
    os.kill(died, signal.SIGKILL)
    until(lambda: bed.process.poll() is not None)
    assert bed.process.returncode == 1
    assert bed.stderr.splitlines()[-1].startswith("spillover: producer p2 has ended: ")
    assert not bed.left()
