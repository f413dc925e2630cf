"""All code has types that fit, as mypy sees them: the rules are in pyproject.toml.

Without what it knows from the last time, as on a clean checkout, it takes a core for a minute: so
`make test` has it among the tests that only compute, and `make check` runs `mypy` itself, beside
the style.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.slow]

ROOT = Path(__file__).parents[1]


def test_types_fit():
    """And there are some: all that is ours is strict."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
