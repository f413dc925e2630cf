"""Commands without the packages of an extra: one line that says how to get them, from a checkout
and elsewhere, before anything is started."""

import json
import subprocess
import sys

import pytest

from spillover.model import extras

pytestmark = pytest.mark.processes

HIDING = """
import contextlib, importlib.abc, io, json, sys
hidden, commands = json.load(sys.stdin)

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if any(f"{name}.".startswith(f"{one}.") for one in hidden):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Finder())
from spillover.cli import main
for words in commands:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    print(json.dumps([status, out.getvalue(), err.getvalue()]))
"""
"""Runs commands where modules are not installed."""

HIDDEN = ("aiohttp", "cryptography", "distributed", "matplotlib", "numba", "numpy", "redis")

PROBING = (
    *("--producers", "2", "--consumers", "2", "--production-rate", "1", "--consumption-rate", "1"),
    *("--message-time", "0.1", "--buffers", "2", "--max-hops", "1"),
)
MEMBER = ("--group", "g", "--node", "n", "--partitions", "2", "--handler", "python:json:dumps")
BURSTS = ("--topology", "ring5", "--workload", "bursts")

TLS = ("--tls-cert", "a.crt", "--tls-key", "a.key", "--tls-ca", "ca.crt")

NODE = ("node", "--cluster", "a", "--bind", "127.0.0.1:0", "--topology")
NEEDING = {
    ("demo", "--quick"): "report",
    ("lease", "run", "--redis", "redis://127.0.0.1", *MEMBER): "leases",
    ("bench", "node", "--quick"): "bench",
    ("sim", "overflow", *BURSTS, "--engine", "fast"): "sim",
    ("sim", "overflow", *BURSTS, "--plot", "x.png"): "report",
    ("plan", *BURSTS, "--p99-ms", "50"): "sim",
    ("plan", "tokens", "--pool", "comte8"): "sim",
    ("exact", "tokens", "--pool", "comte8"): "sim",
    ("sim", "probing", *PROBING): "sim",
    ("tls", "init", "--topology", "ring5"): "tls",
    ("up", "--tls"): "tls",
    ("topology", "compose", "ring5", "--tls"): "tls",
    ("queue", "--id", "p1", *TLS): "tls",
    (*NODE, "tls.yaml", *TLS): "tls",
    (*NODE, "ring5", "--otel"): "otel",
    ("up", "--otel"): "otel",
    (*NODE, "dask.yaml"): "dask",
}


def test_what_needs_an_extra_says_so(tmp_path):
    """Exit status 2, nothing on stdout, one line with the command that installs it."""
    (tmp_path / "dask.yaml").write_text(
        "clusters: [{id: a, servers: 1, url: 'http://127.0.0.1:9', handler: 'dask:h:1:m:f'}]\n"
    )
    (tmp_path / "tls.yaml").write_text(
        "name: tls\nclusters: [{id: a, servers: 1, url: 'https://127.0.0.1:9'}]\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", HIDING],
        input=json.dumps([[*HIDDEN, "opentelemetry.sdk"], list(NEEDING)]),
        capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    for (words, extra), told in zip(NEEDING.items(), ended.stdout.splitlines(), strict=True):
        status, out, err = json.loads(told)
        assert (status, out, err.count("\n")) == (2, "", 1), (words, err)
        assert err.endswith(f" needs {extras.how_to_get(extra)}\n"), words
        assert f"pip install 'spillover[{extra}]'" in err
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
