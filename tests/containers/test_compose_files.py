"""The files of deploy/ as every compose reads them, and what `make testbed` says where something is
missing: clear words, and what to do.
"""

import os
import shutil
import socket
import subprocess
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROFILES = tuple(
    word for name in ("load", "leases", "queue", "proxy") for word in ("--profile", name)
)
LIMIT_S = 120.0


def run(*command, cwd=DEPLOY, **environment):
    """What came of it."""
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment},
        capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip


def testbed(*services, **environment):
    """Its exit status, and the last line that it said."""
    ended = run(DEPLOY / "testbed.sh", *services, cwd=ROOT, **environment)
    assert ended.stdout == ""
    return ended.returncode, ended.stderr.splitlines()[-1]


testbed.__test__ = False


@pytest.mark.parametrize("overlay", [(), ("-f", "compose.netem.yaml")])
def test_compose_v2_reads_the_files(engine, overlay):
    """With all profiles, and without a warning."""
    ended = run("docker", "compose", *PROFILES, "-f", "compose.yaml", *overlay, "config", "-q")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("overlay", [(), ("-f", "compose.netem.yaml")])
def test_compose_v1_reads_the_files(engine, overlay, require):
    """The last of that kind; few have it any more."""
    require(shutil.which("docker-compose"), "docker-compose 1.29")
    ended = run("docker-compose", *PROFILES, "-f", "compose.yaml", *overlay, "config", "-q")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.fixture
def tools(tmp_path):
    """A PATH with what the script needs, and neither docker nor compose: tests put theirs in it."""
    for name in ("cat", "dirname", "grep", "head", "mktemp", "rm", "sed", "sh", "tee"):
        (tmp_path / name).symlink_to(shutil.which(name))
    return tmp_path


def put(directory, name, script):
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_without_docker(tools):
    status, said = testbed(PATH=str(tools))
    assert status == 2
    assert said.startswith("testbed: expected the command docker: install Docker")
    assert said.endswith("or try without containers: make demo")


def test_without_an_engine(tools, require):
    """The real command, where there is one, and an engine that is not there."""
    require(shutil.which("docker"), "the command docker")
    status, said = testbed(DOCKER_HOST=f"unix://{tools}/nothing.sock")
    assert status == 2
    assert said.startswith("testbed: expected a Docker engine that answers: start it")


@pytest.mark.parametrize("version", ["1.28.6", "v0.9", "1.x"])
def test_an_old_compose(tools, version):
    put(tools, "docker", '[ "$1" = info ]')
    put(tools, "docker-compose", f"echo {version}")
    status, said = testbed(PATH=str(tools))
    assert status == 2
    assert f"expected compose 1.29 or newer, got {version}: install" in said


@pytest.mark.parametrize(
    ("command", "version", "can_wait"),
    [
        ("docker", "2.0.1", False),
        ("docker", "2.26.1-4", True),
        ("docker", "", True),
        ("docker-compose", "1.29.2", False),
        ("docker-compose", "2.30.0", True),
    ],
)
def test_it_waits_with_a_compose_that_can(command, version, can_wait, tools):
    """Whatever it is called: its help tells. The services that were named are passed on."""
    known = "-d, --detach, --wait" if can_wait else "-d, --detach"
    answers = f"""\
case "$*" in
    'version --short') echo '{version}' ;;
    'up --help') echo '{known}' ;;
    *) echo "$*" >>'{tools}/asked' ;;
esac"""
    if command == "docker":
        put(tools, "docker", f"[ $1 = compose ] || exit 0\nshift\n{answers}")
    else:
        put(tools, "docker", '[ "$1" = info ]')
        put(tools, "docker-compose", answers)
    ended = run(DEPLOY / "testbed.sh", "node-a", "redis", cwd=ROOT, PATH=str(tools))
    assert ended.returncode == 0
    wait = "--wait" if can_wait else "--detach"
    assert (tools / "asked").read_text() == f"up {wait} node-a redis\n"
    lines = ended.stderr.splitlines()
    assert all(line.startswith("testbed: ") for line in lines)
    assert ("this compose cannot wait" in lines[0]) != can_wait
    assert "up: cluster a at http://127.0.0.1:8101" in lines[-3]


def test_no_compose(tools):
    put(tools, "docker", '[ "$1" = info ]')
    status, said = testbed(PATH=str(tools))
    assert status == 2
    assert said.startswith("testbed: expected compose: install the package docker-compose-plugin")


def test_a_port_that_is_in_use(engine):
    name = f"spillover-test-{uuid.uuid4().hex[:8]}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        try:
            status, said = testbed("redis", COMPOSE_PROJECT_NAME=name, REDIS_PORT=port)
        finally:
            run("docker", "compose", "-p", name, "down", "-v", "-t", "2")
    assert status == 1
    assert said.startswith(f"testbed: port {port} of 127.0.0.1 is in use: set REDIS_PORT to one")


def test_an_image_that_cannot_be_had(engine, tmp_path):
    for name in ("testbed.sh", "compose.yaml"):
        shutil.copy(DEPLOY / name, tmp_path / name)
    compose = tmp_path / "compose.yaml"
    compose.write_text(compose.read_text().replace("redis:7-bookworm", "registry.invalid/redis:7"))
    name = f"spillover-test-{uuid.uuid4().hex[:8]}"
    ended = run(tmp_path / "testbed.sh", "redis", cwd=ROOT, COMPOSE_PROJECT_NAME=name)
    assert ended.returncode == 1
    assert "testbed: an image could not be had" in ended.stderr.splitlines()[-1]
    run("docker", "compose", "-p", name, "down", "-v", "-t", "2")
