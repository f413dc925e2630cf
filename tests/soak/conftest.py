"""Soaks run for SPILLOVER_SOAK_S seconds each, by `make soak`; without that variable none of this
directory is collected. Processes are started as in the end-to-end tests, by the same fixtures.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import urllib.request
from pathlib import Path

import pytest

if "SPILLOVER_SOAK_S" not in os.environ:
    collect_ignore_glob = ["test_*.py"]

_NAME = "e2e_of_soak"
_SPEC = importlib.util.spec_from_file_location(
    _NAME, Path(__file__).parent.parent / "e2e" / "conftest.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
_E2E = importlib.util.module_from_spec(_SPEC)
sys.modules[_NAME] = _E2E  # its dataclasses look themselves up there
_SPEC.loader.exec_module(_E2E)

start = _E2E.start
up = _E2E.up
spillover = _E2E.spillover
ask = _E2E.ask_fixture
until = _E2E.until_fixture
held = _E2E.held_fixture
is_balanced = _E2E.is_balanced_fixture
free_ports = _E2E.free_ports_fixture


@pytest.fixture(scope="session")
def soak_s() -> float:
    return float(os.environ["SPILLOVER_SOAK_S"])


@pytest.fixture(scope="session")
def gauge():
    """`gauge(url, name)`: a value of a node's /metrics that has no labels but the cluster."""

    def read(url: str, name: str) -> float:
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:  # noqa: S310 - loopback
            text = answer.read().decode()
        found = re.search(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    return read
