"""The wheel that users install: what is in it, and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", directory], cwd=ROOT, capture_output=True, check=True)
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_holds_its_packages_and_nothing_else(wheel_names):
    """No `services`, `loadgen` or `tests` ever lands in a user's site-packages."""
    top_level = {name.split("/")[0] for name in wheel_names}
    (metadata,) = (name for name in top_level if name.endswith(".dist-info"))
    assert metadata.startswith("spillover-")
    assert top_level - {metadata} == {"spillover", "spillover_lab", "spillover_loadgen"}


@pytest.mark.parametrize("package", ["spillover", "spillover_lab", "spillover_loadgen"])
def test_the_wheel_says_that_its_packages_are_typed(wheel_names, package):
    """Users' type checkers read our annotations."""
    assert f"{package}/py.typed" in wheel_names


def test_the_wheel_carries_every_file_of_the_packages(wheel_names):
    """Scripts, templates and other data files travel with the code."""
    sources = {"spillover": "services", "spillover_lab": "loadgen", "spillover_loadgen": "loadgen"}
    wanted = {
        path.relative_to(ROOT / parent).as_posix()
        for package, parent in sources.items()
        for path in (ROOT / parent / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= set(wheel_names)
