"""What tests of the clients share."""

from __future__ import annotations

import socket

import pytest


@pytest.fixture
def nowhere():
    """The url of a port where nobody listens; it stays bound, so that nobody else gets it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
