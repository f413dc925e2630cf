"""Soaks run for SPILLOVER_SOAK_S seconds each, by `make soak`; without that variable none of this
directory is collected. Processes are started as in the end-to-end tests, by the same fixtures.
"""

from __future__ import annotations

import os
import re
import urllib.request

import pytest

if "SPILLOVER_SOAK_S" not in os.environ:
    collect_ignore_glob = ["test_*.py"]


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
