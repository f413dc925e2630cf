"""Why there is no connection, in words that are not asyncio's."""

import errno
import socket

import pytest

from spillover.live.http1.client import HttpClient
from spillover.live.http1.opening import _in_words
from spillover.live.tls.contexts import HANDSHAKE_S
from spillover.model.errors import NotDelivered


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed"), "Connection refused"),
        (OSError(errno.ENETUNREACH, "Connect call failed"), "Network is unreachable"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not"),
        (OSError("Multiple exceptions: one, another"), "Multiple exceptions: one, another"),
        (OSError(), "the other end closed the connection"),
        (UnicodeError("label too long"), "label too long"),
        (ConnectionAbortedError("took too long"), "its part of the handshake did not come within"),
    ],
)
def test_why_there_is_no_connection(error, told):
    assert _in_words(error).startswith(told)
    assert "Connect call failed" not in _in_words(error)


@pytest.mark.parametrize(("scheme", "more_s"), [("http", 0.0), ("https", HANDSHAKE_S)])
def test_a_handshake_has_a_time_of_its_own(scheme, more_s):
    client = HttpClient(f"{scheme}://127.0.0.1:1", connect_timeout_s=2.5)
    assert client._opening._timeout_s == 2.5 + more_s


async def test_who_is_not_there_is_not_one_that_is_not_believed():
    """What is at fault is no certificate."""
    with socket.socket() as taken:  # and nobody listens
        taken.bind(("127.0.0.1", 0))
        told = []
        url = f"https://127.0.0.1:{taken.getsockname()[1]}"
        client = HttpClient(url, on_tls_failure=told.append)
        with pytest.raises(NotDelivered, match="Connection refused") as error:
            await client.request("GET", "/", timeout_s=20.0)
        assert (type(error.value), told) == (NotDelivered, [])
        await client.close()
