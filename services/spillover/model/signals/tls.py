"""Every metric of a service with certificates as data; see `model.signals.node`."""

from __future__ import annotations

from spillover.model.signals.signal import Signal

NOT_AFTER = Signal(
    "spillover_tls_certificate_not_after_seconds",
    "gauge",
    "When the certificate ends (own), the first of those that are sent along with it (chain), and "
    "the first of the CAs that are trusted (ca): Unix time",
    ("of",),
)
HANDSHAKE_FAILURES = Signal(
    "spillover_tls_handshake_failures_total",
    "counter",
    "Handshakes that failed, by who began them (in: somebody else, out: this node) and why",
    ("side", "reason"),
)
