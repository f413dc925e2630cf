"""What a service says where others than its machine can reach it."""

import logging

import pytest

from spillover.apps.http.reach import warn_of_clients
from spillover.live.process.listening import bind_socket

EVERYWHERE = "0.0.0.0"  # noqa: S104 - that is what is tested
OPEN = "whoever reaches this producer may use and operate it: it has no API tokens (--tokens)"
IN_THE_CLEAR = "API tokens are sent in the clear, unless something before this producer speaks TLS"


@pytest.mark.parametrize(
    ("host", "is_secure", "has_tokens", "said"),
    [
        ("127.0.0.1", False, False, []),
        ("::1", False, False, []),
        (EVERYWHERE, False, False, [OPEN]),
        (EVERYWHERE, True, False, [OPEN]),
        (EVERYWHERE, False, True, [IN_THE_CLEAR]),
        (EVERYWHERE, True, True, []),
    ],
)
def test_who_may_come_in_or_listen(caplog, host, is_secure, has_tokens, said):
    with bind_socket(host, 0) as door, caplog.at_level(logging.WARNING):
        warn_of_clients("producer", door, "u", is_secure=is_secure, has_tokens=has_tokens)
    assert [one.msg.words for one in caplog.records] == said
