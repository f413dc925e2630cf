"""Certificates are exchanged while a service runs; what is wrong with new ones changes nothing."""

import asyncio
import contextlib
import logging
import ssl
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import uvloop
from cryptography import x509

from spillover.live.process.logs import OncePerPeriod
from spillover.live.tls import handshakes
from spillover.live.tls.certified import PeerCertificate, certificate_of
from spillover.live.tls.contexts import client_context, trusting_context
from spillover.live.tls.handshakes import at_door
from spillover.live.tls.material import described, read_material
from spillover.live.tls.metrics import TlsMetrics
from spillover.live.tls.rotation import Credentials
from support.certificates import Authority, put, weak
from support.loop import until

NAME = "a.ring5.spillover"


@pytest.fixture(scope="module")
def authority():
    return Authority("old CA")


@pytest.fixture
def files(tmp_path, authority):
    return put(tmp_path, "a", authority.sign(NAME), authority)


@pytest.fixture
def errors(caplog):
    caplog.set_level(logging.INFO, "spillover.live.tls.rotation")
    return lambda: [str(one.msg) for one in caplog.records if one.levelno >= logging.ERROR]


async def test_what_is_wrong_leaves_the_old_one_in_place(files, authority, errors, caplog):
    """It is told once; as soon as the files are right they hold, and that is told."""
    credentials = Credentials(files, NAME)
    before = credentials.material, credentials.client
    wrong = authority.sign(NAME)[0], authority.sign(NAME)[1]
    put(Path(files.cert).parent, "a", wrong, authority)
    for _ in range(3):
        assert not await credentials.look()
    assert (credentials.material, credentials.client) == before
    (told,) = errors()
    assert "certificates stay as they were" in told
    assert "expected the key of the certificate in" in told
    put(Path(files.cert).parent, "a", authority.sign("b.ring5.spillover"), authority)
    assert not await credentials.look()
    assert "(SAN) a.ring5.spillover" in errors()[1]
    put(Path(files.cert).parent, "a", authority.sign(NAME), authority)
    assert await credentials.look()
    assert not await credentials.look()
    assert credentials.client is not before[1]
    assert len(errors()) == 2
    renewed = [one.msg for one in caplog.records if one.msg.words == "certificates are renewed"]
    told = [{"certificate": described(credentials.material.leaf)}]
    assert [one.fields for one in renewed] == told


async def test_what_is_wrong_again_after_it_was_right_is_told_again(files, authority, errors):
    """Whether it was the old one that was right, or a new one."""
    cert = Path(files.cert)
    read, write = cert.read_bytes, cert.write_bytes
    before = read()
    credentials = Credentials(files, NAME)
    for times in (1, 2, 3):
        write(b"no certificate")
        assert not await credentials.look()
        assert len(errors()) == times
        if times == 1:
            write(before)
        else:
            put(cert.parent, "a", authority.sign(NAME), authority)
        assert await credentials.look() is (times > 1)


async def test_what_is_written_while_it_is_read_waits_for_the_next_look(files, authority):
    """What was loaded may be half of one and half of the other."""

    class Interrupted(Credentials):
        def _read(self):
            material = super()._read()
            if further:
                put(Path(files.cert).parent, "a", further.pop(), authority)
            return material

    further = [authority.sign(NAME)]
    credentials = Interrupted(files, NAME)
    before = credentials.material
    put(Path(files.cert).parent, "a", authority.sign(NAME), authority)
    assert not await credentials.look()
    assert credentials.material is before
    assert await credentials.look()
    assert credentials.material.is_as_in_files()


async def test_what_openssl_does_not_take_changes_nothing(files, authority, errors):
    """Though it can be read, and fits."""
    credentials = Credentials(files, NAME)
    before = credentials.material, credentials.client
    put(Path(files.cert).parent, "a", weak(authority), authority)
    for _ in range(2):
        assert not await credentials.look()
    assert (credentials.material, credentials.client) == before
    (told,) = errors()
    assert "expected what OpenSSL takes (" in told


async def test_no_file_ends_a_service_that_runs(files, authority, errors, monkeypatch):
    """Whatever the library that reads it raises."""

    def surprised(content):
        raise LookupError(len(content))

    credentials = Credentials(files, NAME)
    put(Path(files.cert).parent, "a", authority.sign(NAME), authority)
    with monkeypatch.context() as patched:
        patched.setattr(x509, "load_pem_x509_certificates", surprised)
        assert not await credentials.look()
    (told,) = errors()
    assert f"{files.cert}: expected certificates that can be read, got LookupError: " in told
    assert await credentials.look()


async def test_what_is_not_quite_right_is_told_from_the_start_and_of_new_ones_too(
    files, authority, caplog
):
    readable_by_all = partial(Path(files.key).chmod, 0o604)
    caplog.set_level(logging.WARNING, "spillover.live.tls.rotation")
    readable_by_all()
    credentials = Credentials(files, NAME)
    assert len(caplog.records) == 1
    put(Path(files.cert).parent, "a", authority.sign(NAME), authority)
    readable_by_all()
    assert await credentials.look()
    assert len(caplog.records) == 2
    for told in caplog.records:
        assert "anybody on this machine can read the key" in str(told.msg)


async def test_no_thread_to_read_with_leaves_the_old_one_in_place(files, authority, errors):
    """A machine that is out of them: it is told once, and the next look finds what is new."""
    credentials = Credentials(files, NAME)
    looks = []
    credentials.on_look.append(lambda _, **told: looks.append(told["renewed"]))
    put(Path(files.cert).parent, "a", authority.sign(NAME), authority)
    usual = threading.stack_size(1 << 62)
    try:
        for _ in range(2):
            assert not await credentials.look()
    finally:
        threading.stack_size(usual)
    (told,) = errors()
    assert "can't start new thread" in told
    assert await credentials.look()
    assert looks == [False, False, True]


async def test_it_looks_once_for_each_signal(files):
    """One that went on looking would keep a core busy for ever."""
    credentials = Credentials(files, NAME)
    looks = []
    credentials.on_look.append(lambda _, **told: looks.append(told["renewed"]))
    watching = asyncio.create_task(credentials.watch(3600.0))
    for times in (1, 2):
        credentials.wake()
        await until(lambda: len(looks) >= times)  # noqa: B023
        for _ in range(20):  # a look is one such turn through a thread
            await asyncio.to_thread(int)
        assert len(looks) == times
    watching.cancel()


async def test_what_is_over(files, authority):
    """A certificate that has ended, and all that a CA had vouched for that has gone."""
    new = Authority("new CA")
    credentials = Credentials(files, NAME)
    by_old, by_new = (
        ssl.PEM_cert_to_DER_cert(one.sign("b")[0].decode()) for one in (authority, new)
    )
    ended = PeerCertificate(frozenset(), time.time() - 60.0, by_old)
    shown = [ended, *(PeerCertificate(frozenset(), 4e9, der) for der in (by_old, by_new))]
    seen = []
    credentials.on_look.append(lambda one, **_: seen.append([one.is_over(each) for each in shown]))
    await credentials.look()
    put(Path(files.cert).parent, "a", authority.sign(NAME), authority)
    assert await credentials.look(), "with the same CAs"
    put(Path(files.cert).parent, "a", new.sign(NAME), authority, new)
    await credentials.look()
    put(Path(files.cert).parent, "a", new.sign(NAME), new)
    await credentials.look()
    await credentials.look()
    before, after = [True, False, False], [True, True, False]
    assert seen == [before, before, before, after, before]


def test_metrics_tell_when_it_ends_when_a_ca_ends_and_what_has_failed(files, authority):
    credentials = Credentials(files, NAME)
    credentials.failed_out("wrong_name")
    ends, failures = TlsMetrics(("cluster", "a"), credentials).collect()
    assert {one.labels["of"]: one.value for one in ends.samples} == {
        "own": credentials.material.leaf.not_valid_after_utc.timestamp(),
        "ca": authority.certificate.not_valid_after_utc.timestamp(),
    }
    counted = [(one.labels, one.value) for one in failures.samples if one.value]
    assert counted == [({"cluster": "a", "side": "out", "reason": "wrong_name"}, 1.0)]


async def test_what_was_vouched_for_once_is_not_for_good(files, authority):
    """CAs go one after the other: each time it is asked anew who vouches for whom."""
    others = [Authority("second CA"), Authority("third CA")]
    credentials = Credentials(files, NAME)
    der = ssl.PEM_cert_to_DER_cert(others[0].sign("b")[0].decode())
    shown = PeerCertificate(frozenset(), 4e9, der)
    seen = []
    credentials.on_look.append(lambda one, **_: seen.append(one.is_over(shown)))
    for trusted in ([authority, *others], others, others[1:]):
        put(Path(files.cert).parent, "a", others[1].sign(NAME), *trusted)
        assert await credentials.look()
    assert seen == [False, False, True]


class _Held(asyncio.Protocol):
    """Keeps what a server is shown, until the connection is lost."""

    def __init__(self, shown, held):
        self._shown, self._held = shown, held

    def connection_made(self, transport):
        self._transport = transport
        self._held.add(transport)
        self._shown.put_nowait(certificate_of(transport))

    def connection_lost(self, _):
        self._held.discard(self._transport)


@contextlib.asynccontextmanager
async def _served(credentials, callers=ssl.CERT_OPTIONAL):
    """The port, and what is shown there."""
    shown, held = asyncio.Queue(), set()
    server = await asyncio.get_running_loop().create_server(
        at_door(lambda: _Held(shown, held), credentials.front(callers), set()), "127.0.0.1", 0
    )
    yield server.sockets[0].getsockname()[1], shown
    server.close()
    for transport in list(held):
        transport.abort()
    await until(lambda: not held)
    await server.wait_closed()


@contextlib.asynccontextmanager
async def _greeted(port, context):
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=NAME
    )
    try:
        yield reader, writer.get_extra_info("peercert")["serialNumber"]
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_each_handshake_goes_by_the_newest(loop, files, tmp_path, authority):
    """What is shown and who is believed, on the same listening socket."""

    async def main():
        credentials = Credentials(files, NAME)
        new = Authority("new CA")
        by_new = read_material(put(tmp_path, "b", new.sign("b"), new, authority), None)
        by_old = read_material(put(tmp_path, "c", authority.sign("c"), new, authority), None)
        async with _served(credentials) as (port, shown):
            async with _greeted(port, client_context(by_old)) as (_, first):
                assert (await shown.get()).names == {"c"}
            await _is_refused(port, client_context(by_new))
            assert credentials.failures["in", "untrusted"] == 1
            put(tmp_path, "a", new.sign(NAME), new)
            assert await credentials.look()
            async with _greeted(port, client_context(by_new)) as (_, second):
                assert (await shown.get()).names == {"b"}
            assert second != first
            await _is_refused(port, client_context(by_old))
            assert credentials.failures["in", "untrusted"] == 2
            assert sum(credentials.failures.values()) == 2, "waiting for the other is no failure"

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(main(), 20.0))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_comes_to_nothing_is_counted_and_told_with_its_address(
    loop, files, authority, caplog, monkeypatch
):
    """By its reason, also where nothing comes at all; who just leaves is no failure. Each reason
    has a line a second: who only knocks hides nobody's certificate."""
    told = logging.getLogger("spillover.live.tls.rotation.handshakes")
    monkeypatch.setattr(told, "filters", [OncePerPeriod()])  # as it is, without what was before

    async def main():
        credentials = Credentials(files, NAME)
        failures = credentials.failures
        async with _served(credentials, ssl.CERT_REQUIRED) as (port, _):
            for said in (b"", b"\x16\x03\x01\x02\x00"):
                reader, leaver = await asyncio.open_connection("127.0.0.1", port)
                leaver.write(said)
                leaver.close()
                await leaver.wait_closed()
            with monkeypatch.context() as hasty:
                hasty.setattr(handshakes, "HANDSHAKE_S", 0.05)
                reader, silent = await asyncio.open_connection("127.0.0.1", port)
                assert await reader.read() == b""
            silent.close()
            _, talker = await asyncio.open_connection("127.0.0.1", port)
            talker.write(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: failures["in", "no_tls"])
            talker.close()
            await _is_refused(port, trusting_context(files.ca))
            await until(lambda: failures["in", "no_certificate"])
        assert {of[1]: count for of, count in failures.items() if count} == {
            "timeout": 1, "no_tls": 1, "no_certificate": 1,
        }  # fmt: skip
        assert {of[0] for of, count in failures.items() if count} == {"in"}

    with caplog.at_level(logging.INFO, told.name), asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(main(), 20.0))
    said = [str(one.msg) for one in caplog.records if one.name == told.name]
    assert len(said) == 3
    assert all("handshake failed" in one and "address=127.0.0.1" in one for one in said)
    assert any("did not come within" in one and "failure=timeout" in one for one in said)


async def _is_refused(port, context):
    """In TLS 1.3 who is refused learns of it when he reads."""
    async with _greeted(port, context) as (reader, _):
        with contextlib.suppress(ssl.SSLError, ConnectionResetError):
            assert await reader.read() == b""
