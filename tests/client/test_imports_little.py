"""Importing the client package loads none of the libraries that only some of it needs."""

import subprocess
import sys

import pytest

HEAVY = ("redis", "psycopg", "sqlite3", "fastapi", "starlette", "uvicorn", "pydantic", "httpx")

SCRIPT = f"""
import sys
import spillover.client as client
for name in client.__all__:
    getattr(client, name)
print(*[name for name in {HEAVY!r} if name in sys.modules])
"""


@pytest.mark.processes
def test_importing_the_client_is_light():
    """In a process of its own, since this one has everything."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.split() == []
