"""Certificates that are wrong are told in one line, before anything goes by them."""

import codecs
import hashlib
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from spillover.live.tls.material import (
    TlsFiles,
    faults_of,
    fingerprint,
    is_ca,
    names_of,
    read_certificates,
    read_material,
)
from spillover.live.tls.pem_files import read_pem
from spillover.model.errors import InputError
from support.certificates import Authority, put

NAME = "a.ring5.spillover"


@pytest.fixture(scope="module")
def authority():
    return Authority("old CA")


@pytest.fixture(scope="module")
def signed(authority):
    return authority.sign(NAME, "paris.example")


@pytest.fixture
def files(tmp_path, authority, signed):
    return put(tmp_path, "a", signed, authority)


def _complaint(files, name=NAME, now=None):
    with pytest.raises(InputError) as error:
        read_material(files, name, now)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_right_is_read(files, authority):
    material = read_material(files, NAME)
    ends_s = datetime.now(UTC).timestamp() + 90 * 86400
    assert abs(material.not_after_s - ends_s) < 100
    assert material.cas == (authority.certificate,)
    assert material.warnings == ()
    assert material.is_as_in_files()


def test_a_key_that_does_not_fit(files, authority):
    Path(files.key).write_bytes(authority.sign(NAME)[1])
    told = _complaint(files)
    assert told.startswith(f"{files.key}: expected the key of the certificate in {files.cert}")
    assert "paris.example" in told
    assert "sha256 " in told
    assert "CN=old CA" in told


def test_each_file_is_at_fault_by_itself(files, tmp_path, authority):
    """All that is wrong is found, where what is read stops at the first."""
    now = datetime.now(UTC)
    assert faults_of(files, NAME, now) == []
    Path(files.key).write_bytes(authority.sign(NAME)[1])
    Path(files.ca).write_bytes(b"nonsense")
    assert [fault.source for fault in faults_of(files, NAME, now)] == [files.key, files.ca]
    assert [fault.source for fault in faults_of(files, "b.ring5.spillover", now)] == [
        files.cert,
        files.key,
        files.ca,
    ]


def test_of_many_names_some_are_told(tmp_path, authority):
    """And how many there are besides."""
    names = [f"n{number}.example" for number in range(10)]
    for count, rest in ((8, ""), (10, " and 2 more")):
        told = _complaint(put(tmp_path, "a", authority.sign(*names[:count]), authority))
        assert f"got one for {', '.join(names[:8])}{rest} (sha256 " in told


@pytest.mark.parametrize(
    ("days", "told"), [(-1, "expected a certificate that holds already"), (91, "it has ended")]
)
def test_at_the_wrong_time(files, days, told):
    assert told in _complaint(files, now=datetime.now(UTC) + timedelta(days=days))


def test_it_holds_up_to_its_end_and_of_cas_the_first_end_is_told(tmp_path, authority):
    short = Authority("short", lasts=timedelta(days=3))
    files = put(tmp_path, "a", authority.sign(NAME), authority, short)
    material = read_material(files, NAME)
    assert material.cas_not_after_s == short.certificate.not_valid_after_utc.timestamp()
    files = put(tmp_path, "a", authority.sign(NAME), authority)
    ends = read_material(files, NAME).leaf.not_valid_after_utc
    assert read_material(files, NAME, ends - timedelta(seconds=1)).leaf
    assert "it has ended" in _complaint(files, now=ends)


def test_a_file_may_be_so_long_and_no_longer(tmp_path):
    path = tmp_path / "long"
    path.write_bytes(b"x" * 10)
    assert read_pem(str(path), 10) == b"x" * 10
    path.write_bytes(b"x" * 11)
    with pytest.raises(InputError, match="at most 10 bytes"):
        read_pem(str(path), 10)


def test_for_servers_only(tmp_path, authority):
    signed = authority.sign(NAME, usage=[ExtendedKeyUsageOID.SERVER_AUTH])
    assert "for servers and clients" in _complaint(put(tmp_path, "a", signed, authority))


@pytest.mark.parametrize(
    "usage",
    [
        [ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE],
        [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
        [ExtendedKeyUsageOID.CODE_SIGNING, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE],
    ],
)
def test_for_servers_and_clients_among_others(tmp_path, authority, usage):
    files = put(tmp_path, "a", authority.sign(NAME, usage=usage), authority)
    assert read_material(files, NAME).leaf


def test_a_key_with_a_password(files, authority):
    key = load_pem_private_key(Path(files.key).read_bytes(), None)
    form = Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    Path(files.key).write_bytes(key.private_bytes(*form))
    told = f"{files.key}: expected a key without a password"
    assert _complaint(files) == told
    assert [str(fault) for fault in faults_of(files, NAME, datetime.now(UTC))] == [told]


def test_where_any_name_will_do_it_may_be_for_servers_alone(tmp_path, authority):
    """A service that nobody but clients calls; it has to hold all the same."""
    signed = authority.sign("else", usage=[ExtendedKeyUsageOID.SERVER_AUTH])
    files = put(tmp_path, "a", signed, authority)
    assert read_material(files, None).leaf
    assert "it has ended" in _complaint(files, None, datetime.now(UTC) + timedelta(days=91))


def test_each_ca_of_the_file_has_to_be_one(tmp_path, authority, signed):
    """Also behind others; and one that will hold later is none yet."""
    files = put(tmp_path, "a", signed, authority)
    ca = Path(files.ca)
    ca.write_bytes(authority.pem + signed[0])
    assert "expected certificates of CAs, got one for a.ring5.spillover" in _complaint(files)
    later, before = Authority("later"), datetime.now(UTC) - timedelta(days=31)
    ca.write_bytes(later.pem)
    (fault,) = faults_of(files, None, before)[1:]
    assert str(fault).startswith(f"{ca}: expected a CA that holds now, got one for no DNS name")


def test_a_ca_holds_from_its_first_instant_to_its_last(tmp_path, signed):
    """As each certificate does: the end itself is no part of it."""
    ca = Authority("short", lasts=timedelta(days=3))
    files = put(tmp_path, "a", signed, ca)
    begins, ends = ca.certificate.not_valid_before_utc, ca.certificate.not_valid_after_utc
    instant = timedelta(seconds=1)
    for now, holds in ((begins - instant, False), (begins, True), (ends - instant, True)):
        faults = [fault.source for fault in faults_of(files, None, now)]
        assert (files.ca not in faults) is holds
    assert files.ca in [fault.source for fault in faults_of(files, None, ends)]


def test_without_cas_nobody_is_vouched_for(files):
    alone = TlsFiles(cert=files.cert, key=files.key, ca=None)
    material = read_material(alone, NAME)
    assert (material.cas, material.cas_not_after_s) == ((), math.inf)
    assert material.is_as_in_files()
    assert not material.vouches_for(material.leaf.public_bytes(Encoding.DER))
    assert material.warnings == (), "no neighbor calls, who could refuse it"
    assert faults_of(alone, NAME, datetime.now(UTC)) == []


def test_the_certificates_of_a_file(files, authority):
    """Each of them, in order, with who may sign others; and by what one is found."""
    Path(files.ca).write_bytes(authority.pem + Path(files.cert).read_bytes())
    ca, leaf = read_certificates(files.ca)
    assert (is_ca(ca), is_ca(leaf), names_of(ca)) == (True, False, ())
    assert names_of(leaf) == (NAME, "paris.example")
    digest = hashlib.sha256(leaf.public_bytes(Encoding.DER)).hexdigest().upper()
    assert fingerprint(leaf) == ":".join(digest[at : at + 2] for at in range(0, 64, 2))


@pytest.mark.parametrize("which", ["cert", "key", "ca"])
def test_what_can_no_longer_be_read_is_not_as_it_was(files, which):
    material = read_material(files, NAME)
    Path(getattr(files, which)).unlink()
    assert not material.is_as_in_files()


@pytest.mark.parametrize("mark", [codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
def test_what_an_editor_of_windows_has_saved(files, signed, mark):
    """OpenSSL would pass over its first certificate."""
    Path(files.cert).write_bytes(mark + signed[0])
    assert "got a byte order mark (BOM) before it: save it as plain ASCII" in _complaint(files)


def test_a_path_that_is_none(files):
    """It is shown as it can be shown."""
    names = {"cert": "a\0\nb", "key": files.key, "ca": files.ca}
    told = _complaint(TlsFiles(**names))  # Python's own words for it differ by version
    assert told.startswith("a\\x00\\nb: expected a file that can be read (")
    assert "embedded null" in told


@pytest.mark.parametrize("which", ["cert", "key", "ca"])
def test_no_file(files, which):
    path = Path(getattr(files, which))
    path.unlink()
    told = _complaint(files)
    assert told.startswith(f"{path}: expected a file that can be read (No such file")
    path.mkdir()
    assert _complaint(files) == f"{path}: expected a file, got a directory"


def test_a_pipe_is_not_waited_for(files):
    import os

    Path(files.key).unlink()
    os.mkfifo(files.key)
    assert _complaint(files) == f"{files.key}: expected a file, got something else"


@pytest.mark.parametrize(
    ("swapped", "told"),
    [
        ({"cert": "key"}, "expected certificates in PEM, got a private key"),
        ({"key": "cert"}, "expected a private key in PEM, got a certificate"),
        ({"ca": "cert"}, "expected certificates of CAs, got one for a.ring5.spillover"),
    ],
)
def test_one_file_for_another(files, swapped, told):
    names = {one: getattr(files, swapped.get(one, one)) for one in ("cert", "key", "ca")}
    assert told in _complaint(TlsFiles(**names))


@pytest.mark.parametrize("which", ["cert", "key", "ca"])
@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 100, b"x" * 2_000_000])
def test_something_else(files, which, content):
    Path(getattr(files, which)).write_bytes(content)
    assert _complaint(files).startswith(getattr(files, which))


def test_what_ended_vouches_for_nobody(tmp_path, authority, signed):
    over = Authority("over", lasts=timedelta(days=-1))
    material = read_material(put(tmp_path, "a", signed, over, authority), NAME)
    assert material.cas == (authority.certificate,)
    assert "a CA that holds now" in _complaint(put(tmp_path, "a", signed, over))


def test_a_key_that_anybody_can_read_is_told(files):
    for mode in (0o600, 0o640, 0o660, 0o610):
        Path(files.key).chmod(mode)
        assert read_material(files, NAME).warnings == ()
    Path(files.key).chmod(0o644)
    (warning,) = read_material(files, NAME).warnings
    assert warning.startswith(f"{files.key}: anybody on this machine can read the key (mode 644)")


def test_a_certificate_that_no_neighbor_will_believe_is_told(tmp_path, signed):
    files = put(tmp_path, "a", signed, Authority("another CA"))
    (warning,) = read_material(files, NAME).warnings
    assert warning.startswith(
        f"{files.ca}: expected the CA that has issued {files.cert}, CN=old CA"
    )


def test_who_vouches_for_whom(files, tmp_path, authority):
    material = read_material(files, NAME)
    other = Authority("old CA")  # the same name, another key
    for one, is_vouched_for in ((authority, True), (other, False)):
        certificate = read_material(put(tmp_path, "b", one.sign("b"), one), "b").leaf
        assert material.vouches_for(certificate.public_bytes(Encoding.DER)) is is_vouched_for
    assert not material.vouches_for(b"nothing")


def test_a_change_of_any_file_is_seen(files, authority):
    material = read_material(files, NAME)
    with Path(files.ca).open("ab") as opened:
        opened.write(Authority().pem)
    assert not material.is_as_in_files()
