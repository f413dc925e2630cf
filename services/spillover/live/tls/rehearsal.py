"""A rehearsal shows how neighbors will judge a service's certificate: a handshake of both ends with
the files' contents, in memory. So OpenSSL itself judges what `material` does not look at: whether
CAs in between may sign, how long their way may be, for which names and uses they vouch."""

from __future__ import annotations

import ssl
from contextlib import suppress

from spillover.live.tls.contexts import client_context, server_context
from spillover.live.tls.failures import in_words
from spillover.live.tls.material import Material, why_unissued
from spillover.model.errors import InputError

TURNS_MAX = 8
"""The most turns of both ends; a handshake takes two or three."""


def why_refused(material: Material, name: str | None) -> str | None:
    """Returns why whoever trusts the same CAs refuses this certificate, of a server and, unless
    `name` is None, of a client that has to be called this; None if nobody does, and where no CA of
    the file has issued it, which `material` tells."""
    sent = (material.leaf, *material.between)
    if not material.cas or why_unissued(material.files, sent, material.cas) is not None:
        return None
    with suppress(InputError):  # of files that are other ones by now
        told = _shake_hands(material, name)
        if told is not None:
            files = material.files
            return f"{files.cert}: neighbors that trust {files.ca} refuse it: {told}"
    return None


def _shake_hands(material: Material, name: str | None) -> str | None:
    client, callers = client_context(material), ssl.CERT_REQUIRED
    if name is None:
        client.sslobject_class, callers = ssl.SSLObject, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context(material, callers=callers)
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(TURNS_MAX):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return in_words(error).removeprefix("its certificate is not believed: ")
            except ssl.SSLError as error:
                return in_words(error)
            ends.remove(end)
    return None
