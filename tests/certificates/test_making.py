"""What certificates may be used for, and from when until when they hold."""

from datetime import UTC, datetime, timedelta

import pytest

x509 = pytest.importorskip("cryptography.x509")

from spillover.certificates.making import BACKDATED, make_ca, make_leaf  # noqa: E402

NOW = datetime(2031, 2, 3, 4, 5, tzinfo=UTC)
USES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
    "key_agreement", "key_cert_sign", "crl_sign",
)  # fmt: skip


def uses(certificate):
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    return [use for use in USES if getattr(usage.value, use)]


def is_ca(certificate):
    return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_ca_signs_certificates_and_nothing_else():
    ca = make_ca("sites", NOW).certificate
    assert uses(ca) == ["key_cert_sign", "crl_sign"]
    assert is_ca(ca)
    assert ca.not_valid_before_utc == NOW - BACKDATED


def test_a_leaf_signs_no_certificates_and_ends_with_its_ca_at_the_latest():
    ca = make_ca("sites", NOW)
    names = [x509.DNSName("paris")]
    for days, end in (
        (90, NOW + timedelta(days=90)),
        (1_000_000, ca.certificate.not_valid_after_utc),
    ):
        leaf = make_leaf(ca, "paris", names, NOW, days).certificate
        assert uses(leaf) == ["digital_signature"]
        assert not is_ca(leaf)
        assert leaf.not_valid_before_utc == NOW - BACKDATED
        assert leaf.not_valid_after_utc == end
        assert leaf.issuer == ca.certificate.subject
