"""Who stands in for the protocol of a connection tells it all that its transport tells."""

import asyncio

import pytest

from spillover.live.engine.reads import SHARED_BYTES, SharedReads
from spillover.live.http1.small_reads import READ_BYTES, read_in_parts


class Owner(asyncio.Protocol):
    """Notes what it is told."""

    def __init__(self):
        self.told = []

    def connection_made(self, transport):
        self.told.append(("made", transport))

    def data_received(self, data):
        assert type(data) is bytes
        self.told.append(("data", data))

    def eof_received(self):
        self.told.append(("eof", None))
        return True

    def pause_writing(self):
        self.told.append(("pause", None))

    def resume_writing(self):
        self.told.append(("resume", None))

    def connection_lost(self, exc):
        self.told.append(("lost", exc))


class Wire(asyncio.Transport):
    """Stands for a socket."""

    def __init__(self, *, is_secure=False):
        super().__init__({"ssl_object": object()} if is_secure else {})
        self.protocol = None
        self.high = None

    def set_protocol(self, protocol):
        self.protocol = protocol

    def set_read_buffer_limits(self, high=None, low=None):
        assert low is None
        self.high = high


def test_all_that_happens_is_told_in_order():
    owner, wire, error = Owner(), Wire(), OSError("broken")
    reads = SharedReads(owner, 8)
    reads.connection_made(wire)
    for data in (b"one", b"and more"):
        reads.get_buffer(-1)[: len(data)] = data
        reads.buffer_updated(len(data))
    reads.pause_writing()
    reads.resume_writing()
    assert reads.eof_received() is True, "the owner goes on"
    reads.connection_lost(error)
    assert owner.told == [
        ("made", wire),
        ("data", b"one"),
        ("data", b"and more"),
        ("pause", None),
        ("resume", None),
        ("eof", None),
        ("lost", error),
    ]


@pytest.mark.parametrize(("given", "size_bytes"), [((10,), 10), ((), SHARED_BYTES)])
def test_no_more_is_read_at_once_than_was_said(given, size_bytes):
    reads = SharedReads(Owner(), *given)
    assert len(reads.get_buffer(1 << 20)) == size_bytes


def test_answers_that_are_handed_on_are_read_in_parts():
    """With TLS all that has come is decrypted at once: there no more is taken while it waits."""
    plain, secure, owner = Wire(), Wire(is_secure=True), Owner()
    read_in_parts(plain, owner)
    assert len(plain.protocol.get_buffer(-1)) == READ_BYTES
    plain.protocol.connection_lost(None)
    assert owner.told == [("lost", None)]
    assert plain.high is None
    read_in_parts(secure, owner)
    assert (secure.protocol, secure.high) == (None, 1)
