"""The rings hold: the contracts of pyproject.toml, checked by import-linter."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.processes
def test_every_import_contract_is_kept():
    """No inner ring imports an outer one, the kernel does no I/O, packages stay apart."""
    lint_imports = Path(sys.executable).parent / "lint-imports"
    run = subprocess.run(
        [lint_imports, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
