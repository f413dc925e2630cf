"""One compose testbed for all tests of a session, and what must be there for it.

Opt-in, SPILLOVER_DOCKER=1: an image is built, and containers are started.
"""

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# The engine is on this machine, as the published ports are, also where the machine is itself a
# container. Nothing is left to a container that cleans up: every fixture here does, by itself.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
os.environ.setdefault("TESTCONTAINERS_CONNECTION_MODE", "docker_host")
os.environ.setdefault("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")


def pytest_collection_modifyitems(items):
    """The first one waits until an image is built."""
    for item in items:
        if str(item.path).startswith(f"{HERE}{os.sep}"):
            item.add_marker(pytest.mark.timeout(600))


def works(*command):
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@pytest.fixture(scope="session")
def engine(require):
    """An engine and compose v2, asked for."""
    if os.environ.get("SPILLOVER_DOCKER") != "1":
        pytest.skip("builds an image and starts containers: SPILLOVER_DOCKER=1 runs it")
    require(works("docker", "info"), "a Docker engine that answers (docker info)")
    require(works("docker", "compose", "version"), "compose v2 (docker compose version)")
    require(importlib.util.find_spec("testcontainers"), "testcontainers")


@pytest.fixture(scope="session")
def beds(engine):
    """The module `compose_bed`, which needs testcontainers."""
    from support.containers import compose_bed

    return compose_bed


@pytest.fixture(scope="session")
def bed(beds, tmp_path_factory):
    """Up and healthy, and gone in the end."""
    beds.build_image()
    with beds.Bed(tmp_path_factory.mktemp("bed")) as bed:
        yield bed
    assert bed.containers() == []
