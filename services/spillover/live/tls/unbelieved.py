"""A certificate that is not believed, for people to read: OpenSSL tells what is wrong with a
certificate, and not which one it was. The end that shows it gets no message."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from spillover.live.hosts.dialing import open_socket
from spillover.live.tls.contexts import harden

LOOK_S = 1.0
"""The longest time for a look: what failed waits for it."""


async def certificate_shown(host: str, port: int, name: str) -> str | None:
    """Returns which certificate is shown there to who asks for `name`, in words; None if none is
    to be had soon, or nothing is installed that reads them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    harden(context)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    loop, der = asyncio.get_running_loop(), None
    with suppress(OSError, UnicodeError):
        async with asyncio.timeout(LOOK_S):
            opened = await open_socket(host, port, LOOK_S)
            transport, _ = await loop.create_connection(
                asyncio.Protocol, sock=opened, ssl=context, server_hostname=name
            )
        der = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        transport.abort()
    return None if der is None else _in_words(der)


def _in_words(der: bytes) -> str | None:
    try:
        from cryptography import x509  # noqa: PLC0415 - clients need not have it

        from spillover.live.tls.material import described  # noqa: PLC0415 - as above
    except ImportError:
        return None
    with suppress(ValueError):
        return described(x509.load_der_x509_certificate(der))
    return None
