"""Commands without the packages of an extra: one line that says how to get them, from a checkout
and elsewhere, before anything is started."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from spillover.model import extras

pytestmark = pytest.mark.processes

HIDING = """
import importlib.abc, sys
hidden = sys.argv[1].split(",")

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if any(f"{name}.".startswith(f"{one}.") for one in hidden):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Finder())
from spillover.cli import main
sys.exit(main(sys.argv[2:]))
"""
"""Runs a command where modules are not installed."""

PROBING = (
    *("--producers", "2", "--consumers", "2", "--production-rate", "1", "--consumption-rate", "1"),
    *("--message-time", "0.1", "--buffers", "2", "--max-hops", "1"),
)
MEMBER = ("--group", "g", "--node", "n", "--partitions", "2", "--handler", "python:json:dumps")
BURSTS = ("--topology", "ring5", "--workload", "bursts")

TLS = ("--tls-cert", "a.crt", "--tls-key", "a.key", "--tls-ca", "ca.crt")

NEEDING = {
    "demo": ("matplotlib", "report", ("demo", "--quick")),
    "lease run": ("redis", "leases", ("lease", "run", "--redis", "redis://127.0.0.1", *MEMBER)),
    "bench node": ("aiohttp", "bench", ("bench", "node", "--quick")),
    "fast engine": ("numba", "sim", ("sim", "overflow", *BURSTS, "--engine", "fast")),
    "plot": ("matplotlib", "report", ("sim", "overflow", *BURSTS, "--plot", "x.png")),
    "plan": ("numba", "sim", ("plan", *BURSTS, "--p99-ms", "50")),
    "plan tokens": ("numpy", "sim", ("plan", "tokens", "--pool", "comte8")),
    "exact tokens": ("numpy", "sim", ("exact", "tokens", "--pool", "comte8")),
    "sim probing": ("numba", "sim", ("sim", "probing", *PROBING)),
    "tls": ("cryptography", "tls", ("tls", "init", "--topology", "ring5")),
    "up tls": ("cryptography", "tls", ("up", "--tls")),
    "compose tls": ("cryptography", "tls", ("topology", "compose", "ring5", "--tls")),
    "queue tls": ("cryptography", "tls", ("queue", "--id", "p1", *TLS)),
    "node tls": ("cryptography", "tls", ("node", "--topology", "tls.yaml", "--cluster", "a", *TLS)),
    "otel": (
        "opentelemetry.sdk",
        "otel",
        ("node", "--topology", "ring5", "--cluster", "a", "--otel"),
    ),
    "up otel": ("opentelemetry.sdk", "otel", ("up", "--otel")),
    "dask": ("distributed", "dask", ("node", "--topology", "dask.yaml", "--cluster", "a")),
}


@pytest.mark.parametrize(
    ("package", "extra", "command"), NEEDING.values(), ids=[n.replace(" ", "_") for n in NEEDING]
)
def test_what_needs_an_extra_says_so(package, extra, command, tmp_path):
    """Exit status 2, nothing on stdout, one line with the command that installs it."""
    (tmp_path / "dask.yaml").write_text(
        "clusters: [{id: a, servers: 1, url: 'http://127.0.0.1:9', handler: 'dask:h:1:m:f'}]\n"
    )
    (tmp_path / "tls.yaml").write_text(
        "name: tls\nclusters: [{id: a, servers: 1, url: 'https://127.0.0.1:9'}]\n"
    )
    bind = ("--bind", "127.0.0.1:0") if command[0] == "node" else ()
    ended = subprocess.run(
        [sys.executable, "-c", HIDING, package, *command, *bind],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.endswith(f" needs {extras.how_to_get(extra)}\n")
    assert f"pip install 'spillover[{extra}]'" in ended.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"dask.yaml", "tls.yaml"}


ELSEWHERE = " (outside a checkout: pip install 'spillover[dask]')"


class Installed:
    """A distribution as importlib.metadata gives it, installed like this."""

    def __init__(self, direct_url):
        self.direct_url = direct_url

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.direct_url


@pytest.mark.parametrize(
    ("direct_url", "prefix", "command"),
    [
        (None, "/v", "pip install 'spillover[dask]'"),
        (
            {"url": "file:///src", "dir_info": {"editable": True}},
            "/src/.venv",
            f"/src/deploy/setup_venv.sh{ELSEWHERE}",
        ),
        (
            {"url": "file:///my%20src", "dir_info": {"editable": True}},
            "/v",
            f"{sys.executable} -m pip install -e '/my src[dask]'{ELSEWHERE}",
        ),
        (
            {"url": "https://example.org/spillover.whl", "archive_info": {}},
            "/v",
            "pip install 'spillover[dask]'",
        ),
        ({"url": "file:///src", "dir_info": {}}, "/v", "pip install 'spillover[dask]'"),
    ],
)
def test_the_command_is_of_this_installation(direct_url, prefix, command, monkeypatch):
    """The .venv of a checkout is set up by a script; other places have pip."""
    told = None if direct_url is None else json.dumps(direct_url)
    monkeypatch.setattr(extras, "distribution", lambda _: Installed(told))
    monkeypatch.setattr(sys, "prefix", prefix)
    assert extras.how_to_get("dask") == f"the extra `dask`: {command}"
