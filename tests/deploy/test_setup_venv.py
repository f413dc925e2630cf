"""How .venv is made: in a checkout of its own, by an installer that only notes what it is asked."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).parents[2] / "deploy" / "setup_venv.sh"
UV = """\
#!/bin/sh
echo "$*" >>asked
case $1 in venv) mkdir -p .venv/bin && ln -s "$REAL" .venv/bin/python ;; esac
! { [ "$1" = pip ] && [ -e broken ]; }
"""
TOO_OLD = "#!/bin/sh\nexit 1\n"


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "deploy").mkdir()
    shutil.copy(SCRIPT, tmp_path / "deploy")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("uv", UV), ("old", TOO_OLD)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return tmp_path


def set_up(checkout, **environment):
    """Its status, and what it said."""
    path = f"{checkout / 'tools'}:{os.environ['PATH']}"
    given = {**os.environ, "PATH": path, "REAL": sys.executable, "PYTHON": sys.executable}
    ended = subprocess.run(
        [checkout / "deploy" / "setup_venv.sh"],
        env=given | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stderr


def asked(checkout):
    lines = (checkout / "asked").read_text().splitlines()
    (checkout / "asked").unlink()
    return lines


def test_the_lock_is_installed_by_its_hashes_and_then_the_checkout(checkout):
    status, said = set_up(checkout)
    assert status == 0, said
    made, lock, own = asked(checkout)
    assert made == f"venv --quiet --python {sys.executable} .venv"
    assert lock.endswith("--no-deps --require-hashes -r requirements.lock")
    assert own.endswith("--no-deps --no-build-isolation -e .")
    assert (checkout / ".venv" / ".complete").exists()
    status, said = set_up(checkout)
    assert (status, "updating .venv" in said) == (0, True)
    assert len(asked(checkout)) == 2, "what is there stays"


def test_what_was_interrupted_is_made_afresh(checkout):
    assert set_up(checkout)[0] == 0
    (checkout / "broken").touch()
    assert set_up(checkout)[0] != 0
    assert not (checkout / ".venv" / ".complete").exists()
    (checkout / "broken").unlink()
    asked(checkout)
    assert set_up(checkout)[0] == 0
    assert asked(checkout)[0].startswith("venv ")


def test_a_python_that_is_too_old_is_refused_in_one_line(checkout):
    old = str(checkout / "tools" / "old")
    assert set_up(checkout, PYTHON=old) == (
        2,
        f"spillover: PYTHON: expected Python 3.11 or newer, got {old}\n",
    )
    assert not (checkout / "asked").exists()
