"""Certificates in between count: what is sent along with a leaf, in whatever order, for whatever
use. Neighbors trust the root alone, as cert-manager's ca.crt has it."""

import logging
import random
import ssl
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from spillover.live.tls import failures
from spillover.live.tls.certified import certificate_of
from spillover.live.tls.chains import has_signed, holds, leads_to
from spillover.live.tls.contexts import client_context, server_context
from spillover.live.tls.material import faults_of, read_material
from spillover.live.tls.metrics import TlsMetrics
from spillover.live.tls.rehearsal import why_refused
from spillover.live.tls.rotation import Credentials
from spillover.model.errors import InputError
from support.certificates import Authority, put

NAME = "a.ring5.spillover"
ENDED = timedelta(days=-1)
FOR_SERVERS = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
FOR_OTHERS = x509.NameConstraints([x509.DNSName("example.com")], None)


@pytest.fixture(scope="module")
def root():
    return Authority("root")


@pytest.fixture(scope="module")
def between(root):
    return Authority("between", by=root)


def chain(directory, issuer, *sent, name=NAME, trusted):
    """The files of a leaf by this issuer, with these sent along."""
    leaf, key = issuer.sign(name)
    return put(directory, "a", (leaf + b"".join(one.pem for one in sent), key), *trusted)


def greet(caller, called, name=NAME):
    """The two ends, in memory, once each believes the other. Raises SSLError."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(caller).wrap_bio(to_client, to_server, server_hostname=name)
    serving = server_context(called, callers=ssl.CERT_REQUIRED)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client, server


def shown(end):
    return certificate_of(SimpleNamespace(get_extra_info=lambda _: end))


def is_well(files):
    """Whether nothing is said, and neighbors believe it, of a server and of a client."""
    material = read_material(files, NAME)
    assert faults_of(files, NAME, datetime.now(UTC)) == []
    assert (material.warnings, why_refused(material, NAME)) == ((), None)
    for end in greet(material, material):
        assert shown(end).names == {NAME}
    return True


def test_the_root_alone_beside_a_chain_is_well(tmp_path, root, between):
    """Also where what is sent is in another order, more than is needed, or the leaf twice."""
    below = Authority("below", by=between)
    stranger = Authority("stranger")
    assert is_well(chain(tmp_path, between, between, trusted=[root]))
    assert is_well(chain(tmp_path, below, below, between, trusted=[root]))
    assert is_well(chain(tmp_path, below, root, between, stranger, below, trusted=[root]))
    assert is_well(chain(tmp_path, below, below, trusted=[between]))
    files = chain(tmp_path, between, between, trusted=[root])
    sent = Path(files.cert).read_bytes()
    Path(files.cert).write_bytes(sent + sent)
    assert is_well(files)


def test_one_that_has_ended_in_between_ends_all(tmp_path, root):
    """As a leaf that has ended: nobody would believe it."""
    late = Authority("late", by=root, lasts=ENDED)
    below = Authority("below", by=late)
    for files in (
        chain(tmp_path / "1", late, late, trusted=[root]),
        chain(tmp_path / "2", below, below, late, trusted=[root]),
        chain(tmp_path / "3", late, late, trusted=[Authority("else")]),
    ):
        with pytest.raises(InputError) as error:
            read_material(files, NAME)
        told = f"{files.cert}: expected those between the certificate and its CA to hold, too: "
        assert str(error.value).startswith(f"{told}CN=late (sha256 ")
        assert ": it has ended at " in str(error.value)
        assert [str(one) for one in faults_of(files, NAME, datetime.now(UTC))]


def test_one_that_has_ended_and_is_not_needed_is_told(tmp_path, root, between):
    """As of a CA that had once been signed by another one, and an old CA of the bundle."""
    crossed = Authority("between", by=Authority("older"), like=between, lasts=ENDED)
    old = Authority("old", lasts=ENDED)
    files = chain(tmp_path, between, crossed, between, trusted=[root, old])
    material = read_material(files, NAME)
    sent, ca = material.warnings
    assert sent.startswith(f"{files.cert}: expected those that are sent along to hold, got CN=bet")
    assert ca.startswith(f"{files.ca}: expected CAs that hold, got CN=old (sha256 ")
    assert why_refused(material, NAME) is None
    greet(material, material)


def test_what_is_missing_in_between_is_told_by_its_name(tmp_path, root, between):
    below = Authority("below", by=between)
    for sent, missing in (((), "CN=below"), ((below,), "CN=between")):
        (told,) = read_material(chain(tmp_path, below, *sent, trusted=[root]), NAME).warnings
        assert f", {missing} (or, behind the certificate in that file, those in bet" in told


def test_a_certificate_behind_those_in_between(tmp_path, root, between):
    files = chain(tmp_path, between, trusted=[root])
    Path(files.cert).write_bytes(between.pem + Path(files.cert).read_bytes())
    with pytest.raises(InputError, match=r"the certificate first, and .* as number 2$"):
        read_material(files, NAME)


@pytest.mark.parametrize(
    ("above", "limits", "told"),
    [
        (0, {}, "path length constraint exceeded"),
        (None, {"limits": [FOR_SERVERS]}, "unsuitable certificate purpose"),
        (None, {"limits": [FOR_OTHERS]}, "permitted subtree violation"),
    ],
)
def test_a_way_that_openssl_refuses_is_told_before_neighbors_do(
    tmp_path, above, limits, told, caplog
):
    """As of a CA that vouches for leaves alone, for servers alone, for other names: what is valid
    elsewhere may be refused of a client."""
    top = Authority("top", path_length=above)
    middle = Authority("middle", by=top, **limits)
    files = chain(tmp_path, middle, middle, trusted=[top])
    with caplog.at_level(logging.WARNING):
        Credentials(files, NAME)
    assert f"{files.cert}: neighbors that trust {files.ca} refuse it: {told}" in caplog.text


def test_each_end_is_a_metric(tmp_path, root):
    """The first of those that are sent along, and of all CAs."""
    short = Authority("short", by=root, lasts=timedelta(days=5))
    old = Authority("old", lasts=ENDED)
    credentials = Credentials(chain(tmp_path, short, short, trusted=[root, old]), NAME)
    ends, _ = TlsMetrics(("cluster", "a"), credentials).collect()
    told = {sample.labels["of"]: sample.value for sample in ends.samples}
    for of, ca in (("chain", short), ("ca", old)):
        assert told[of] == ca.certificate.not_valid_after_utc.timestamp()


def test_a_connection_ends_with_the_first_by_which_it_was_believed(tmp_path, root, between):
    """And goes on while any of the CAs vouches for one of those: once a valid client was refused
    as soon as any CA had gone, for the CA in between was not known."""
    short = Authority("short", by=root, lasts=timedelta(days=5))
    material = read_material(chain(tmp_path, short, short, trusted=[root]), NAME)
    for end in greet(material, material):
        assert shown(end).not_after_s == short.certificate.not_valid_after_utc.timestamp()
    files = chain(tmp_path, between, between, trusted=[root, Authority("other")])
    credentials = Credentials(files, NAME)
    client, server = map(shown, greet(credentials.material, credentials.material))
    credentials._cas_went = True
    assert not credentials.is_over(server)
    assert not credentials.is_over(client)
    credentials._vouched.clear()
    credentials.material = read_material(chain(tmp_path, short, trusted=[short]), NAME)
    assert credentials.is_over(server)


@pytest.mark.parametrize(
    ("names", "is_believed"),
    [
        ([NAME], True),
        ([f"{NAME.upper()}."], True),
        (["else", NAME], True),
        (["*.ring5.spillover"], False),
        (["b.ring5.spillover"], False),
        ([f"x{NAME}"], False),
        ([f"{NAME}.."], False),
    ],
)
def test_who_somebody_is_is_one_rule_at_both_ends(tmp_path, root, names, is_believed):
    material = read_material(put(tmp_path, "a", root.sign(*names), root), None)
    if is_believed:
        client, server = greet(material, material)
        assert NAME in shown(client).names & shown(server).names
        return
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch") as error:
        greet(material, material)
    assert failures.reason_of(error.value) == failures.WRONG_NAME


def test_ways_are_found_as_by_trying_all():
    """Among CAs that sign each other in any way, some of which do not hold."""
    draw = random.Random(1)
    top = [Authority(f"top {number}") for number in range(2)]
    signers = list(top)
    for number in range(6):
        lasts = draw.choice([ENDED, timedelta(days=9)])
        signers.append(Authority(f"{number % 4}", by=draw.choice(signers), lasts=lasts))
    every = [one.certificate for one in signers[2:]]
    now = datetime.now(UTC)

    def reaches(leaf, trusted, left):
        """By trying each way to its end."""
        return any(leaf == ca or has_signed(ca, leaf) for ca in trusted) or any(
            has_signed(one, leaf) and reaches(one, trusted, left - {one}) for one in left
        )

    for leaf, ca in product(every, [one.certificate for one in signers]):
        sent = draw.sample(every, draw.randrange(len(every)))
        assert leads_to(leaf, sent, [ca], None) is reaches(leaf, [ca], frozenset(sent))
        held = frozenset(one for one in sent if holds(one, now))
        assert leads_to(leaf, sent, [ca], now) is reaches(leaf, [ca], held)
