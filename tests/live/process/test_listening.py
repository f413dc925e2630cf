"""Sockets that services listen on, and what is told where there can be none."""

import errno
import os
import socket

import pytest

from spillover.live.process.listening import bind_socket
from spillover.model.addresses import of_socket
from spillover.model.errors import InputError


def test_a_port_can_be_taken_again_at_once_and_connections_come():
    """Also while some of whoever had it before linger."""
    with bind_socket("127.0.0.1", 0) as listening:
        assert listening.family == socket.AF_INET
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        address = listening.getsockname()
        with socket.create_connection(address, 20.0), listening.accept()[0] as accepted:
            accepted.close()  # who closes first is who lingers
    with bind_socket(*address) as again:
        assert again.getsockname() == address


def test_many_may_come_at_once():
    with bind_socket("127.0.0.1", 0) as listening:
        callers = [socket.create_connection(listening.getsockname(), 20.0) for _ in range(100)]
        for caller in callers:
            caller.close()


def test_an_address_of_the_other_kind(require):
    try:
        listening = bind_socket("::1", 0)
    except InputError:
        require(condition=False, reason="an IPv6 address")
    with listening:
        assert listening.family == socket.AF_INET6


def test_all_addresses_are_those_of_both_kinds():
    """And clients of IPv4 are told by the address that they have."""
    with bind_socket("::", 0) as listening:
        place = ("127.0.0.1", listening.getsockname()[1])
        with socket.create_connection(place, 20.0) as caller:
            accepted, told = listening.accept()
            with accepted:
                assert of_socket(told) == caller.getsockname()
    assert of_socket(("::1", 80, 0, 0)) == ("::1", 80)
    assert of_socket("/a/path") is None


def test_all_addresses_where_there_is_no_ipv6(monkeypatch):
    def without(family, *more):
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return made(family, *more)

    made = socket.socket
    monkeypatch.setattr(socket, "socket", without)
    with bind_socket("::", 0) as listening:
        assert listening.getsockname()[0] == "0.0.0.0"  # noqa: S104


@pytest.mark.parametrize(
    ("host", "port", "why"),
    [
        ("127.0.0.1", None, os.strerror(errno.EADDRINUSE)),
        ("203.0.113.1", 0, os.strerror(errno.EADDRNOTAVAIL)),
        ("127.0.0.1", 70_000, "port must be 0-65535"),
        ("a" * 64, 1, "("),
        ("\udcff", 1, "encoding of hostname failed"),
        ("a\0b", 1, "("),
    ],
    ids=["taken", "of another host", "no port", "no name", "no text", "not to its end"],
)
def test_what_cannot_be_had_is_told_by_the_option_that_says_it(host, port, why):
    with bind_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1] if port is None else port
        with pytest.raises(InputError) as told:
            bind_socket(host, port, "--url")
    assert str(told.value).startswith("--url: expected an address that can be bound, got ")
    assert f"{host}:{port} (" in str(told.value)
    assert why in str(told.value)
    assert told.value.__cause__ is not None
