"""TLS to Redis: whom one believes. The library's own connections, which believe the system's CAs
besides those of the url, go by it in `connections`.
"""

from __future__ import annotations

import ssl

from spillover.live.tls.contexts import harden


def redis_context(ca_file: str | None, *, verifies: bool) -> ssl.SSLContext:
    """Returns how to call a Redis whom these CAs vouch for, or the system's where none are given;
    any Redis unless it `verifies`. Raises OSError for a file that holds none."""
    context = ssl.create_default_context(cafile=ca_file or None)
    harden(context)
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
