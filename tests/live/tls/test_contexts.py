"""Whom either end of a handshake believes, and what it is told to have failed for: handshakes in
memory, without a socket."""

import ssl
from datetime import timedelta
from types import SimpleNamespace

import pytest

pytest.importorskip("cryptography")

from spillover.live.tls import failures
from spillover.live.tls.certified import certificate_of
from spillover.live.tls.contexts import client_context, server_context, trusting_context
from spillover.live.tls.material import read_material
from spillover.live.tls.pem_files import FILE_BYTES_MAX
from spillover.model.errors import InputError
from spillover.model.trust import CA_VARIABLE
from support.certificates import Authority, put, weak

NAME = "a.ring5.spillover"
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def authority():
    return Authority()


class Ends:
    """A server and a client, and what lies between them."""

    def __init__(self, server, client, name=NAME):
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.to_server = there
        self.server = server.wrap_bio(there, back, server_side=True)
        self.client = client.wrap_bio(back, there, server_hostname=name)

    def shake(self):
        """Until both are done. Raises what either says, the client first."""
        for _ in range(4):
            for one in (self.client, self.server):
                try:
                    one.do_handshake()
                except ssl.SSLWantReadError:
                    continue


def served(tmp_path, signed, *trusted, callers=ssl.CERT_OPTIONAL):
    """A context to listen with."""
    files = put(tmp_path, "server", signed, *trusted)
    return server_context(read_material(files, None), callers=callers)


def believing(tmp_path, *trusted):
    """A context that shows nothing."""
    file = tmp_path / "trusted.ca"
    file.write_bytes(b"".join(one.pem for one in trusted))
    return trusting_context(str(file))


def test_a_name_counts_only_where_names_stand(tmp_path, authority):
    """In the SAN: what a certificate's subject is called is anybody's guess."""
    signed = authority.sign(addresses=["127.0.0.1"])
    ends = Ends(served(tmp_path, signed, authority), believing(tmp_path, authority), "nobody")
    with pytest.raises(ssl.SSLCertVerificationError) as error:
        ends.shake()
    assert failures.reason_of(error.value) == failures.WRONG_NAME


def test_a_ca_of_the_bundle_is_trusted_though_another_has_signed_it(tmp_path, authority):
    """Also where that other one is not."""
    between = Authority("between", by=authority)
    signed = between.sign(NAME)
    Ends(served(tmp_path, signed, between), believing(tmp_path, between)).shake()
    with pytest.raises(ssl.SSLCertVerificationError):
        Ends(served(tmp_path, signed, between), believing(tmp_path, Authority("else"))).shake()


def test_without_a_file_it_is_the_system_that_says_whom_to_believe(
    tmp_path, authority, monkeypatch
):
    """Or the file that the environment names, and then nobody else."""
    monkeypatch.delenv(CA_VARIABLE, raising=False)
    system, named = tmp_path / "system.pem", tmp_path / "named.pem"
    system.write_bytes(authority.pem)
    named.write_bytes(Authority("another").pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(system))
    server = served(tmp_path, authority.sign(NAME), authority)
    Ends(server, trusting_context(None)).shake()
    monkeypatch.setenv(CA_VARIABLE, str(named))
    with pytest.raises(ssl.SSLCertVerificationError):
        Ends(server, trusting_context(None)).shake()


def test_who_the_other_end_is_stands_in_its_dns_names(tmp_path, authority):
    """In lower case, and no address among them."""
    shown = authority.sign("B.Ring5.Spillover", "paris.example", addresses=["127.0.0.1"])
    caller = client_context(read_material(put(tmp_path, "b", shown, authority), None))
    ends = Ends(served(tmp_path, authority.sign(NAME), authority), caller)
    ends.shake()
    found = certificate_of(SimpleNamespace(get_extra_info=lambda _: ends.server))
    assert found.names == {"b.ring5.spillover", "paris.example"}
    leaf = read_material(put(tmp_path, "b", shown, authority), None).leaf
    assert (found.der, found.not_after_s) == (
        ssl.PEM_cert_to_DER_cert(shown[0].decode()),
        leaf.not_valid_after_utc.timestamp(),
    )
    assert certificate_of(SimpleNamespace(get_extra_info=lambda _: ends.client)).names == {NAME}


def test_what_nobody_has_looked_at_says_nothing(tmp_path, authority):
    """A certificate that was shown and not asked for, or none; and nothing without TLS."""
    careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    ends = Ends(served(tmp_path, authority.sign(NAME), authority), careless)
    ends.shake()
    assert ends.client.getpeercert(binary_form=True)
    for end in (ends.client, ends.server, None):
        assert certificate_of(SimpleNamespace(get_extra_info=lambda _, end=end: end)) is None


def test_what_openssl_does_not_take_is_told_in_one_line(tmp_path, authority):
    """As a key that is too short, which fits its certificate."""
    files = put(tmp_path, "weak", weak(authority), authority)
    material = read_material(files, NAME)
    for make in (server_context, client_context):
        with pytest.raises(InputError) as error:
            make(material)
        assert str(error.value).startswith(f"{files.cert}: expected what OpenSSL takes (")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"hello", "expected certificates in PEM, got something else"),
        (b"-----BEGIN PRIVATE KEY-----\n", "expected certificates in PEM, got a private key"),
        (b"", "expected PEM, got an empty file"),
    ],
)
def test_a_bundle_without_any_certificate(tmp_path, content, told):
    file = tmp_path / "bundle"
    file.write_bytes(content)
    with pytest.raises(InputError) as error:
        trusting_context(str(file))
    assert str(error.value) == f"{file}: {told}"


def test_a_bundle_may_be_longer_than_the_cas_of_a_federation(tmp_path, authority):
    """As a system's is."""
    file = tmp_path / "bundle"
    file.write_bytes(b"# what it is for\n" * 70_000 + authority.pem)
    assert file.stat().st_size > FILE_BYTES_MAX
    assert len(trusting_context(str(file)).get_ca_certs()) == 1


WRONG = {
    "expired": ((NAME,), {"ends": -DAY, "begins": -2 * DAY}),
    "not_yet_valid": ((NAME,), {"begins": DAY}),
    "wrong_name": (("b.ring5.spillover",), {}),
}


@pytest.mark.parametrize("reason", WRONG)
def test_what_is_wrong_with_a_certificate_is_counted_by_its_name(tmp_path, authority, reason):
    names, dates = WRONG[reason]
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = put(tmp_path, "server", authority.sign(*names, **dates), authority)
    server.load_cert_chain(files.cert, files.key)
    with pytest.raises(ssl.SSLCertVerificationError) as error:
        Ends(server, believing(tmp_path, authority)).shake()
    assert failures.reason_of(error.value) == reason
    assert failures.in_words(error.value).startswith("its certificate is not believed: ")


def test_what_else_a_handshake_fails_for(tmp_path, authority):
    """Bytes that are no TLS, nothing shown where it must be, and nobody that is trusted."""
    server = served(tmp_path, authority.sign(NAME), authority, callers=ssl.CERT_REQUIRED)
    ends = Ends(server, believing(tmp_path, authority))
    ends.to_server.write(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(ssl.SSLError) as error:
        ends.server.do_handshake()
    assert failures.reason_of(error.value) == "no_tls"
    assert failures.in_words(error.value).startswith("it does not speak TLS (")
    with pytest.raises(ssl.SSLError) as error:
        Ends(server, believing(tmp_path, authority)).shake()
    assert failures.reason_of(error.value) == "no_certificate"
    words = "no handshake came about (peer did not return a certificate)"
    assert failures.in_words(error.value) == words
    with pytest.raises(ssl.SSLError) as error:
        Ends(server, believing(tmp_path, Authority("else"))).shake()
    assert failures.reason_of(error.value) == "untrusted"
    assert not failures.is_of_handshake(TimeoutError()), "nobody to shake hands with"
    assert failures.reason_of(ConnectionAbortedError()) == "timeout"
    words = "its part of the handshake did not come within 5 s"
    assert failures.in_words(ConnectionAbortedError()) == words


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "not_yet_valid"),
        (10, "expired"),
        (18, "untrusted"),
        (19, "untrusted"),
        (20, "untrusted"),
        (62, "wrong_name"),
        (63, "wrong_name"),
        (64, "wrong_name"),
        (65, "untrusted"),
    ],
)
def test_what_openssl_says_of_a_certificate_is_one_of_few_reasons(code, reason):
    """By its numbers, which are in <openssl/x509_vfy.h>."""
    error = ssl.SSLCertVerificationError(1, "x")
    error.verify_code, error.verify_message = code, "it is so."
    assert failures.reason_of(error) == reason
    assert failures.in_words(error) == "its certificate is not believed: it is so"


def test_who_breaks_off_is_told_by_what_the_system_says():
    """As a socket that is reset amidst the handshake; OpenSSL's own errors may have no word."""
    assert failures.in_words(ConnectionResetError("It was RESET")) == (
        "no handshake came about (it was reset)"
    )
    nameless = ssl.SSLError(1, "Some_Words")
    nameless.reason = None
    assert failures.reason_of(nameless) == "protocol"
    assert "some words" in failures.in_words(nameless)
    assert failures.is_of_handshake(nameless)
    assert failures.is_of_handshake(ConnectionAbortedError())
    assert not failures.is_of_handshake(ConnectionResetError())
    assert failures.reason_of(TimeoutError()) == "timeout"
    assert failures.reason_of(ConnectionResetError("reset")) == "protocol"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("HTTP_REQUEST", "no_tls"),
        ("HTTPS_PROXY_REQUEST", "no_tls"),
        ("WRONG_VERSION_NUMBER", "no_tls"),
        ("RECORD_LAYER_FAILURE", "no_tls"),
        ("UNSUPPORTED_PROTOCOL", "protocol"),
    ],
)
def test_what_is_no_tls_at_all(word, reason):
    error = ssl.SSLError(1, "x")
    error.reason = word
    assert failures.reason_of(error) == reason


@pytest.mark.parametrize("word", ["TLSV1_ALERT_UNKNOWN_CA", "TLSV13_ALERT_CERTIFICATE_REQUIRED"])
def test_an_alert_is_the_word_of_the_other_end(word):
    """It is this side's certificate that is to be looked at then."""
    error = ssl.SSLError(1, "x")
    error.reason = word
    assert failures.reason_of(error) == "refused"
    told = word.lower().replace("_", " ")
    expected = f"it does not believe this side's certificate, or was shown none ({told})"
    assert failures.in_words(error) == expected
