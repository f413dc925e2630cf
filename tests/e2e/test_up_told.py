"""What `up` tells to be tried works as it is printed, pasted into a shell."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from spillover.model.access import Role
from support.api_tokens import let_in
from support.ports import free_row
from support.waiting import until

STARTED_S = 120.0
PASTED_S = 60.0
TWO = """
name: two
clusters:
  - {id: a, servers: 2, service_ms: 20}
  - {id: b, servers: 2, service_ms: 20}
links: [{between: [a, b]}]
"""
CALL = re.compile(r"  (?:export|spillover|curl) ")


def pasted(bed, secret):
    """What came of the calls, and what was printed with them."""
    told = bed.stderr.partition("Try")[2]
    calls = [line for line in told.splitlines() if CALL.match(line)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-e"], input="\n".join(calls), capture_output=True, text=True,
        timeout=PASTED_S, env={"PATH": path, "SPILLOVER_TOKEN": secret}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (calls, done.stderr)
    return done.stdout, told


@pytest.fixture
def tokens(require, tmp_path):
    require(shutil.which("curl"), "curl on the PATH (Debian: apt-get install curl)")
    file = tmp_path / "of shops.yaml"
    return file, let_in(file, "me", "shop", Role.SUBMIT, Role.READ)


@pytest.fixture
def secured(spillover, tokens, tmp_path, monkeypatch):
    """With certificates and API tokens, in a directory with a blank in its name."""
    directory = tmp_path / "a directory"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))

    def start_it(*arguments):
        options = ("--tls", "--tokens", str(tokens[0]), "--port", str(free_row(4)))
        bed = spillover("up", *arguments, *options)
        until(lambda: re.search(r"\n  curl .*\n", bed.stderr), STARTED_S)
        return bed

    return start_it


def test_of_clusters(secured, tokens, tmp_path):
    (tmp_path / "two.yaml").write_text(TWO)
    bed = secured(str(tmp_path / "two.yaml"))
    out, told = pasted(bed, tokens[1])
    assert '"result":' in out
    assert "\n2 clusters are up; Ctrl-C ends them. Try, " in bed.stderr
    assert "with the secret of an API token (roles submit and read) in SPILLOVER_TOKEN" in told
    assert tokens[1] not in told


def test_of_producers(secured, tokens):
    bed = secured("--queue", "2")
    out, _ = pasted(bed, tokens[1])
    first, second, words, *_ = bed.stderr.splitlines()
    assert [line.split()[:2] for line in (first, second)] == [
        ["producer", "p1"],
        ["producer", "p2"],
    ]
    assert words.startswith("2 producers are up; Ctrl-C ends them. Try, ")
    assert "HTTP/1.1 200 OK" in out
    assert out.endswith("an object")
