"""Hosts of several addresses of which some do not answer: on either loop, and in a thread."""

import asyncio
import socket
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from spillover.core.hosts import race
from spillover.live.hosts import blocking, dialing
from spillover.live.hosts.attempts import in_words
from spillover.live.hosts.lookups import Hosts
from support import silent_address
from support.loop import turn

LIMIT_S = 15.0
DELAY_S = 0.05
OPEN = Path("/proc/self/fd")
FIRST, SECOND, THIRD = (f"127.0.0.{number}" for number in (2, 3, 4))

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="127.0.0.2 is this machine's on Linux alone"
)


@contextmanager
def machine(answering=(), swallowing=()):
    """A port at which some addresses answer, and some swallow what comes; others refuse."""
    with ExitStack() as stack:
        port = 0
        for address in swallowing:
            port = stack.enter_context(silent_address.swallowing(address, port))
        for address in answering:
            server = stack.enter_context(socket.create_server((address, port), backlog=100))
            port = server.getsockname()[1]
        yield port


def leading_to(*addresses):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 0)) for one in addresses]
    return Hosts(lambda *_, **__: found)


def by_loop(factory):
    def connect(port, hosts, limit_s=LIMIT_S):
        async def main():
            async with asyncio.timeout(limit_s):
                transport, _ = await dialing.connect(
                    asyncio.Protocol, "h.test", port, limit_s, hosts
                )
            opened = transport.get_extra_info("socket")
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            place = transport.get_extra_info("peername")[0]
            transport.abort()
            await turn(0)
            return place

        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(main())

    return connect


def by_thread(port, hosts, limit_s=LIMIT_S):
    with blocking.connect("h.test", port, limit_s, hosts) as opened:
        return opened.getpeername()[0]


@pytest.fixture(autouse=True)
def soon_the_next(monkeypatch):
    """Has each address a shorter time before the next one is tried."""
    for module in (race, dialing):
        monkeypatch.setattr(module, "DELAY_S", DELAY_S)


@pytest.fixture(params=["asyncio", "uvloop", "thread"])
def connect(request):
    """Returns to which address a connection went."""
    import uvloop

    if request.param == "thread":
        return by_thread
    return by_loop(uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop)


def test_an_address_that_swallows_connections_costs_one_a_moment_and_others_nothing(connect):
    with machine([SECOND], swallowing=[FIRST]) as port:
        hosts = leading_to(FIRST, SECOND)
        began_s = time.monotonic()
        assert connect(port, hosts) == SECOND
        took_s = time.monotonic() - began_s
        assert DELAY_S <= took_s < LIMIT_S / 2
        attempts = []
        hosts.tried = lambda _, won, lost: attempts.append((won[1], dict(lost)))
        assert {connect(port, hosts) for _ in range(4)} == {SECOND}
        assert attempts == [(SECOND, {})] * 4


def test_an_address_that_refuses_costs_nothing(connect):
    """The next one has its turn at once."""
    with machine([THIRD]) as port:
        assert connect(port, leading_to(FIRST, SECOND, THIRD)) == THIRD


def test_hosts_of_several_addresses_have_all_of_them_used(connect):
    with machine([FIRST, SECOND]) as port:
        hosts = leading_to(FIRST, SECOND)
        assert [connect(port, hosts) for _ in range(4)] == [FIRST, SECOND] * 2


def test_it_is_told_what_each_address_has_said(connect):
    with machine(swallowing=[FIRST]) as port:
        with pytest.raises(ConnectionRefusedError) as error:
            connect(port, leading_to(SECOND))
        assert in_words(error.value) == "Connection refused"
        with pytest.raises(OSError, match=r"^Connection refused \(127.0.0.3, 127.0.0.4\)$"):
            connect(port, leading_to(SECOND, THIRD))
        hosts = leading_to(FIRST, SECOND)
        with pytest.raises(TimeoutError):
            connect(port, hosts, 4 * DELAY_S)
        assert hosts.why_late("h.test") == f"{FIRST}: no answer; {SECOND}: Connection refused"


def test_no_socket_stays_open(connect):
    """Of those that were too late, or that nobody waits for."""
    with machine([SECOND], swallowing=[FIRST, THIRD]) as port:
        connect(port, leading_to(SECOND))
        before = len([*OPEN.iterdir()])
        connect(port, leading_to(FIRST, SECOND, THIRD))
        with pytest.raises(TimeoutError):
            connect(port, leading_to(FIRST, THIRD), 4 * DELAY_S)
        assert len([*OPEN.iterdir()]) == before
