"""Hands out the module that starts whole nodes: tests are no package, so it is loaded by path."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parent.parent / "live" / "federation.py"


@pytest.fixture(scope="session")
def nodes():
    """`nodes.Federation(nodes.topology_of("a", "b"))` and what goes with it."""
    name = "nodes_of_tests"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FILE)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
