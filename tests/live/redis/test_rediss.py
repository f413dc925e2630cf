"""`rediss://`: leases and the configuration over TLS, with a password, at a Redis that has to prove
its name. The library and the renewals, which do without it, believe the CAs of the address."""

import asyncio
import socket
import ssl
from contextlib import closing

import pytest

pytest.importorskip("cryptography")

from spillover.inputs.topology_file import short_text
from spillover.model.configuration import Stamp, of_file
from spillover.model.errors import StoreUnreachable
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Topology
from support.certificates import Authority, put

PASSWORD = "s3cret-of-tests"  # noqa: S105


def _options(port, files):
    return (
        "--tls-port", str(port), "--tls-cert-file", files.cert, "--tls-key-file", files.key,
        "--tls-ca-cert-file", files.ca, "--tls-auth-clients", "no",
    )  # fmt: skip


@pytest.fixture(scope="module")
def secure(redis_with_tls, redis_servers, tmp_path_factory):
    """`secure(ca_file)`: the address of a Redis with TLS; and the right file."""
    directory = tmp_path_factory.mktemp("redis")
    authority, port = Authority(), redis_servers.free_port()
    files = put(directory, "redis", authority.sign("localhost"), authority)
    options = (*_options(port, files), "--requirepass", PASSWORD)
    with redis_servers.running(directory, *options, password=PASSWORD):

        def address(ca_file):
            return f"rediss://:{PASSWORD}@localhost:{port}/0?ssl_ca_certs={ca_file}"

        yield address, files.ca


def callers(url):
    """Those who speak to a Redis, by what each raises where it cannot: the library in its two
    kinds, and a renewal."""
    from spillover.live.leases.renewal.resp import RedisFailed, RespConnection, pack
    from spillover.live.leases.streams.client import Client
    from spillover.live.leases.streams.steps import Wait
    from spillover.live.redis.address import parse_address
    from spillover.live.redis.connection import failures, open_client

    def renew():
        with closing(RespConnection(parse_address(url), 5.0, lambda: None)) as connection:
            assert connection.call(pack([b"PING"])) == b"PONG"

    def wait():
        yield Wait("stream", "0", 0.01)

    async def ask():
        client = open_client(url, 5.0)
        try:
            await client.ping()
        finally:
            await client.aclose()
            await client.connection_pool.disconnect()

    def follow():
        with closing(Client(url, 5.0)) as client:
            client.carry_out(wait())

    return [
        (renew, RedisFailed),
        (follow, StoreUnreachable),
        (lambda: asyncio.run(ask()), failures()),
    ]


@pytest.mark.usefixtures("redis_with_tls")
def test_nobody_takes_an_old_suite(redis_servers, tmp_path):
    """At a Redis that has no better one. What Python would take by itself gets in."""
    authority, port = Authority(), redis_servers.free_port()
    files = put(tmp_path, "redis", authority.sign("localhost"), authority)
    options = (
        *_options(port, files),
        "--tls-protocols",
        "TLSv1.2",
        "--tls-ciphers",
        "ECDHE-ECDSA-AES256-SHA384",
    )
    with redis_servers.running(tmp_path, *options):
        with socket.create_connection(("localhost", port)) as plain:
            context = ssl.create_default_context(cafile=files.ca)
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.wrap_socket(plain, server_hostname="localhost").close()
        for call, error in callers(f"rediss://localhost:{port}/0?ssl_ca_certs={files.ca}"):
            with pytest.raises(error):
                call()


@pytest.mark.usefixtures("redis_with_tls")
def test_where_the_url_names_cas_those_of_the_system_do_not_count(
    redis_servers, tmp_path, monkeypatch
):
    """A domain of that name, which the system's vouch for, is not this Redis. Without any in the
    url they count."""
    authority, port = Authority(), redis_servers.free_port()
    files = put(tmp_path, "redis", authority.sign("localhost"), authority)
    foreign = tmp_path / "foreign.ca"
    foreign.write_bytes(Authority("another").pem)
    monkeypatch.setenv("SSL_CERT_FILE", files.ca)
    with redis_servers.running(tmp_path, *_options(port, files)):
        for call, _ in callers(f"rediss://localhost:{port}/0"):
            call()
        for options in (f"ssl_ca_certs={foreign}", f"ssl_ca_certs={tmp_path / 'none'}"):
            for call, error in callers(f"rediss://localhost:{port}/0?{options}"):
                with pytest.raises(error):
                    call()
        unseen = f"ssl_ca_certs={foreign}&ssl_cert_reqs=none"
        for call, _ in callers(f"rediss://localhost:{port}/0?{unseen}"):
            call()


async def test_a_configuration_is_kept(secure, redis_servers, tmp_path):
    """Not at a Redis that a stranger vouches for."""
    from spillover.live.membership.store import ConfigurationStore

    address, ca_file = secure
    name = redis_servers.new_name()
    topology = Topology(name=name, clusters=(Cluster(id=ClusterId("a"), servers=1),))
    wanted = of_file(topology).next(("a", 1), topology, short_text(topology))
    foreign = tmp_path / "foreign.ca"
    foreign.write_bytes(Authority("another").pem)

    store, other = (ConfigurationStore(address(file), name) for file in (ca_file, foreign))
    assert await store.put(wanted, Stamp(0)) is None
    assert await store.get() == wanted
    with pytest.raises(StoreUnreachable, match="rediss://localhost") as raised:
        await other.get()
    assert PASSWORD not in str(raised.value)
    await store.close()
    await other.close()
