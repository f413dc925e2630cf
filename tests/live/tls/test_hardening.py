"""What every door with TLS speaks, and what it does not: what sslyze and testssl look for. Their
clients are played by OpenSSL at its most lenient, which a lenient server is seen to go along with.
"""

import asyncio
import contextlib
import shutil
import ssl
import warnings

import pytest

from spillover.live.tls.certified import certificate_of
from spillover.live.tls.contexts import client_context, server_context
from spillover.live.tls.handshakes import Front, at_door
from spillover.live.tls.rotation import Credentials
from support.certificates import Authority, put

NAME = "a.test.spillover"
OP_ALLOW_CLIENT_RENEGOTIATION = 1 << 8
"""Of <openssl/ssl.h>; versions before 3.0 need none for that."""


@pytest.fixture(scope="module")
def credentials(tmp_path_factory):
    authority = Authority()
    files = put(tmp_path_factory.mktemp("tls"), "a", authority.sign(NAME), authority)
    return Credentials(files, NAME)


@pytest.mark.processes
def test_nothing_is_negotiated_anew(credentials):
    """A client that asks for it within a connection, which TLS 1.2 allows, is refused."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")

    class Silent(asyncio.Protocol):
        pass

    async def ask(tls):
        loop = asyncio.get_running_loop()
        server = await loop.create_server(at_door(Silent, tls, set()), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = await asyncio.create_subprocess_exec(
            openssl, "s_client", "-tls1_2", "-connect", f"127.0.0.1:{port}",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said = b""
        while b"Verify return code" not in said:
            said += await asyncio.wait_for(client.stdout.read(65_536), 9.0)
        client.stdin.write(b"R\n")
        while b"RENEGOTIATING" not in said:
            said += await asyncio.wait_for(client.stdout.read(65_536), 9.0)
        # What it says next is how it ended; it goes on until its input ends where it went well.
        client.stdin.write(b"Q\n")
        told, _ = await asyncio.wait_for(client.communicate(), 9.0)
        server.close()
        return (said + told).lower()

    assert b"no renegotiation" in asyncio.run(ask(credentials.front(ssl.CERT_NONE)))
    lax = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    lax.load_cert_chain(credentials.material.files.cert, credentials.material.files.key)
    lax.options |= OP_ALLOW_CLIENT_RENEGOTIATION
    assert b"no renegotiation" not in asyncio.run(ask(Front(lambda: lax)))


def test_nothing_is_resumed(credentials):
    """By neither version: who vouched for a session from before may have gone. The older one keeps
    sessions all the same, and who comes with one has shown no certificate."""
    material = credentials.material
    for version, is_reused in ((ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, False)):
        server, client = server_context(material), client_context(material)
        client.maximum_version = version
        session = None
        for _ in range(2):
            ours, theirs = _shaken(server, client, session)
            assert ours.version() == {"TLSv1_2": "TLSv1.2", "TLSv1_3": "TLSv1.3"}[version.name]
            assert not any(part in ours.cipher()[0] for part in ("CBC", "RSA-AES", "RC4", "SHA1"))
            theirs.write(b"x")  # tickets would come before it
            assert ours.read(1) == b"x"
            session = ours.session
        assert theirs.session_reused == is_reused
        assert (certificate_of(_Transport(theirs)) is None) == is_reused


class _Transport:
    def __init__(self, ssl_object):
        self._ssl_object = ssl_object

    def get_extra_info(self, name):
        return {"ssl_object": self._ssl_object}[name]


def _shaken(server, client, session=None):
    """Both ends of a connection in memory, after their handshake."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    ours = client.wrap_bio(to_client, to_server, server_hostname=NAME, session=session)
    for _ in range(5):
        for end in (ours, theirs):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ours, theirs


@pytest.mark.parametrize("end", ["client", "server"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_are_refused(credentials, version, end):
    """Where this OpenSSL knows them at all, and by either end: what calls neighbors takes no
    less."""
    material = credentials.material
    server, client = server_context(material), client_context(material)
    old = client if end == "client" else server
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        old.minimum_version = version
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        _shaken(server, client)


@pytest.mark.parametrize(
    "ciphers", ["AES128-SHA", "ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384", "NULL"]
)
def test_weak_suites_are_refused(credentials, ciphers):
    """TLS 1.2 without forward secrecy or authenticated encryption."""
    material = credentials.material
    server, client = server_context(material), client_context(material)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        client.set_ciphers(f"{ciphers}:@SECLEVEL=0")
    except ssl.SSLError:
        return  # this OpenSSL does not know them either
    with pytest.raises(ssl.SSLError):
        _shaken(server, client)
