"""What tests of several directories share, and nothing that is a test: `from support.waiting import
until`; `histories` are random ones, in virtual time. What only one directory needs stays there, and
so do fixtures, in its conftest.
"""

from pathlib import Path

HANDLERS = Path(__file__).parent / "handlers"
"""Modules that processes under test import by name, as a user's: from their working directory, or
from PYTHONPATH. None of them is imported from here."""
SERVICES = Path(__file__).parent / "services"
