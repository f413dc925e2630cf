"""`spillover tls`: what it makes nodes take, a CA is changed in steps that never part them, and
`check` finds what is wrong with certificates of anybody."""

import json
import shutil
import ssl
import stat
import threading
from codecs import BOM_UTF8
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from socket import create_server

import pytest

pytest.importorskip("cryptography")

from spillover.certificates.directory import CertificateDirectory, sans_of
from spillover.cli import main
from spillover.live.tls.contexts import client_context, server_context
from spillover.live.tls.material import TlsFiles, read_material
from support.certificates import Authority

TOPOLOGY = """
name: sites
clusters:
  - {id: paris, servers: 1, url: "http://paris.example:8101", peer_url: "http://10.0.0.1:9101"}
  - {id: tokyo, servers: 1}
"""


@pytest.fixture
def topology(tmp_path):
    path = tmp_path / "sites.yaml"
    path.write_text(TOPOLOGY)
    return path


@pytest.fixture
def made(topology, tmp_path, capsys):
    """The directory that init has made."""
    out = tmp_path / "made"
    assert main(["tls", "init", "--topology", str(topology), "--out", str(out)]) == 0
    capsys.readouterr()
    return out


@pytest.fixture(name="tls")
def tls_as_json(told):
    """What the command tells as JSON."""

    def run(*words, status=0):
        found, out, _ = told("tls", *words, "--json")
        assert found == status
        return json.loads(out)

    return run


@pytest.fixture
def complaint(refused):
    return lambda *words: refused("tls", *words)


@pytest.fixture
def problems(tls):
    """What `check` finds wrong, by place."""

    def run(*words):
        said = tls("check", *words, status=1)
        assert not said["ok"]
        return {one["place"]: " ".join(one["problems"]) for one in said["certificates"]}

    return run


def files_of(directory, cluster):
    place = directory / cluster
    return TlsFiles(
        cert=str(place / "tls.crt"), key=str(place / "tls.key"), ca=str(place / "ca.crt")
    )


def material(directory, cluster):
    """As a node of this cluster reads it."""
    return read_material(files_of(directory, cluster), f"{cluster}.sites.spillover")


def greets(caller, server, name):
    """Whether these two, in memory, come to a connection on which both believe each other."""
    to_server, to_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server_context(server, callers=ssl.CERT_REQUIRED)
    answering = serving.wrap_bio(to_server, to_caller, server_side=True)
    calling = client_context(caller).wrap_bio(to_caller, to_server, server_hostname=name)
    ends = {calling, answering}
    try:
        for _ in range(8):
            for end in list(ends):
                try:
                    end.do_handshake()
                    ends.remove(end)
                except ssl.SSLWantReadError:
                    pass
    except ssl.SSLCertVerificationError:
        return False
    return not ends


def test_nodes_take_what_is_made(made):
    """Each for its own name, whatever the url; keys are for their owner alone."""
    paris, tokyo = (material(made, cluster) for cluster in ("paris", "tokyo"))
    assert (paris.warnings, tokyo.warnings) == ((), ())
    assert greets(paris, tokyo, "tokyo.sites.spillover")
    assert greets(tokyo, paris, "10.0.0.1")
    assert not greets(tokyo, paris, "tokyo.sites.spillover")
    keys = sorted(made.rglob("*.key"))
    assert len(keys) == 3
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    begins = paris.leaf.not_valid_before_utc
    assert timedelta(minutes=5) <= datetime.now(UTC) - begins < timedelta(minutes=6)


def test_init_tells_what_it_made(topology, tmp_path, tls):
    out = tmp_path / "certificates"
    said = tls("init", "--topology", topology, "--out", out, "--days", "30")
    assert said["directory"] == str(out)
    paris, tokyo = said["clusters"]["paris"], said["clusters"]["tokyo"]
    own = ["localhost", "127.0.0.1", "::1"]
    assert paris["names"] == ["paris.sites.spillover", "paris.example", "10.0.0.1", *own]
    assert tokyo["names"] == ["tokyo.sites.spillover", *own]
    assert (paris["days_left"], said["cas"][0]["days_left"]) == (30, 3650)
    assert paris["issuer"] == said["cas"][0]["subject"]


def test_keys_are_replaced_only_by_force(topology, made, tls, complaint):
    before = (made / "paris/tls.key").read_bytes()
    for command in ("init", "add --cluster paris"):
        arguments = [*command.split(), "--topology", topology, "--out", made]
        assert "expected to replace no keys" in complaint(*arguments)
        assert (made / "paris/tls.key").read_bytes() == before
        tls(*arguments, "--force")
        after = (made / "paris/tls.key").read_bytes()
        assert after != before
        before = after


def test_a_cluster_is_added(topology, made, tls, problems):
    topology.write_text(TOPOLOGY + "  - {id: lima, servers: 1}\n")
    missing = str(made / "lima/tls.crt")
    wrong = problems(made, "--topology", topology)
    assert [place for place, said in wrong.items() if said] == [missing]
    said = tls("add", "--topology", topology, "--cluster", "lima", "--out", made)
    assert list(said["clusters"]) == ["lima"]
    assert greets(material(made, "lima"), material(made, "paris"), "paris.sites.spillover")
    assert tls("check", made, "--topology", topology)["ok"]


def test_producers_and_lease_members_have_certificates_too(topology, made, tmp_path, tls):
    """Of a name and a CA of their own, or of those of the federation; no topology knows of them."""
    own = tmp_path / "own"
    hosts = "p2=https://queue.example:8080,10.0.0.2"
    said = tls("init", "--name", "orders", "--service", "p1", "--service", hosts, "--out", own)
    assert set(said["clusters"]) == {"p1", "p2"}
    found = read_material(files_of(own, "p2"), "p2.orders.spillover")
    names = [str(name.value) for name in sans_of(found.leaf)]
    assert names[:3] == ["p2.orders.spillover", "queue.example", "10.0.0.2"]
    assert {"localhost", "127.0.0.1"} <= set(names)
    assert tls("check", own)["ok"]
    tls("add", "--service", "p3=10.0.0.3", "--out", own)  # the name is that of the CA
    read_material(files_of(own, "p3"), "p3.orders.spillover")
    tls("renew", "--out", own)
    again = read_material(files_of(own, "p2"), "p2.orders.spillover")
    assert [str(name.value) for name in sans_of(again.leaf)] == names
    tls("add", "--service", "n0", "--name", "nightly", "--out", made)
    read_material(files_of(made, "n0"), "n0.nightly.spillover")
    assert tls("check", made, "--topology", topology)["ok"]
    both = tmp_path / "both"
    services = ("--service", "p1", "--name", "orders")
    tls("init", "--topology", topology, *services, "--out", both)
    read_material(files_of(both, "p1"), "p1.orders.spillover")
    material(both, "paris")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--topology: expected a file or a built-in name, or --name and --service"),
        (["--service", "p1"], "--topology: expected a file or a built-in name, or --name and"),
        (["--name", "orders"], "--topology: expected a file or a built-in name, or --name and"),
        (["--name", "two words", "--service", "p1"], "--name: expected a name of A-Z"),
        (["--name", "orders", "--service", ""], "--service: expected an id that can be a DNS"),
        (["--name", "orders", "--service", "../p1"], "--service: expected an id that can be a"),
        (["--name", "orders", "--service", "p1="], "--service: expected ID, or ID=HOST"),
        (["--name", "orders", "--service", "p1=http://h"], "--service: expected ID, or ID=HOST"),
        (["--name", "orders", "--service", "p1=h:8080"], "--service: expected ID, or ID=HOST"),
        (["--name", "orders", "--service", "p1", "--service", "P1"], "differ, got 'P1' twice"),
    ],
)
def test_services_that_can_have_none(options, words, tmp_path, complaint):
    out = tmp_path / "out"
    assert words in complaint("init", *options, "--out", out)
    assert not out.exists()


def test_what_is_to_be_added_has_to_be_said(topology, made, complaint):
    for options, words in (
        ([], "--cluster: expected one of the topology, or --service"),
        (["--cluster", "paris"], "--topology: expected along with --cluster"),
        (["--topology", topology], "--cluster: expected along with --topology"),
        (["--service", "paris"], "expected to replace no keys"),
        (["--service", "p1", "--service", "P1"], "--service: expected ids that differ, got 'P1'"),
    ):
        assert words in complaint("add", *options, "--out", made)
    given = ("--topology", topology, "--cluster", "paris", "--name", "x")
    assert "--name: expected along with --service" in complaint(
        "add", *given, "--out", made, "--force"
    )


def test_people_are_told_what_was_made_and_who_gets_it(made, capsys):
    """And how long it holds: a certificate for the days asked for, a CA for ten years."""
    began = datetime.now(UTC)
    assert main(["tls", "renew", "--out", str(made), "--days", "20"]) == 0
    out, err = capsys.readouterr()
    paris, tokyo, ca = out.splitlines()
    assert paris.startswith(f"{made / 'paris'}  paris.sites.spillover, ")
    assert tokyo.startswith(f"{made / 'tokyo'}  tokyo.sites.spillover")
    ends = {f"{now + timedelta(days=20):%Y-%m-%d}" for now in (began, datetime.now(UTC))}
    assert [end for end in ends if f"  until {end}" in paris]
    assert ca.startswith(f"{made / 'ca.crt'}  ")
    years = int(ca.rpartition("  until ")[2][:4]) - began.year
    assert years in {9, 10}
    assert err == (
        f"spillover: each node gets the three files of its directory, nobody {made / 'ca.key'}: "
        f"`spillover tls check {made}` tells what is there\n"
    )


def test_renewal_keeps_names_and_makes_keys(made, tls):
    before = {cluster: material(made, cluster) for cluster in ("paris", "tokyo")}
    said = tls("renew", "--out", made, "--cluster", "paris", "--days", "20")
    assert list(said["clusters"]) == ["paris"]
    assert "paris.example" in said["clusters"]["paris"]["names"]
    assert said["clusters"]["paris"]["days_left"] == 20
    after = material(made, "paris")
    assert after.leaf.public_key() != before["paris"].leaf.public_key()
    assert before["tokyo"].is_as_in_files()
    assert greets(after, before["tokyo"], "tokyo.sites.spillover")


def test_renewal_takes_hosts_from_a_topology(topology, made, tls, problems):
    topology.write_text(TOPOLOGY.replace("paris.example", "elsewhere.example"))
    assert "elsewhere.example" in str(problems(made, "--topology", topology))
    tls("renew", "--out", made, "--topology", topology)
    assert tls("check", made, "--topology", topology)["ok"]


def test_a_ca_is_changed_without_parting_anybody(made, tmp_path, tls):
    """Old, both, new: whoever has the files of a step understands those of the step before."""
    steps = []
    for number, step in enumerate((None, ["--ca"], [], ["--drop-old-ca"])):
        if step is not None:
            tls("renew", "--out", made, *step)
        copied = shutil.copytree(made, tmp_path / str(number))
        assert tls("check", copied)["ok"]
        steps.append({cluster: material(copied, cluster) for cluster in ("paris", "tokyo")})
    for older, newer in pairwise(steps):
        assert greets(older["paris"], newer["tokyo"], "tokyo.sites.spillover")
        assert greets(newer["paris"], older["tokyo"], "tokyo.sites.spillover")
    assert [len(step["paris"].cas) for step in steps] == [1, 2, 2, 1]
    assert not greets(steps[0]["paris"], steps[-1]["tokyo"], "tokyo.sites.spillover")
    assert not greets(steps[-1]["paris"], steps[0]["tokyo"], "tokyo.sites.spillover")


def test_steps_of_a_ca_are_not_left_out(made, tls, complaint):
    tls("renew", "--out", made, "--ca")
    assert "expected one CA in" in complaint("renew", "--out", made, "--ca")
    assert "that of paris is of the old one" in complaint("renew", "--out", made, "--drop-old-ca")


@contextmanager
def door(directory, cluster):
    """A door that shows the certificate of this cluster; its url."""
    context = server_context(material(directory, cluster), callers=ssl.CERT_NONE)
    with create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    way, _ = listening.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(way, server_side=True).close()
                except OSError:
                    way.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(2)
    thread.join()


def test_a_door_is_checked(topology, made, capsys, tls, problems):
    with door(made, "paris") as url:
        ca = ("--ca-file", made / "ca.crt")
        said = tls("check", url, *ca, "--topology", topology, "--cluster", "paris")
        assert said["certificates"][0]["expected"] == "paris.sites.spillover"
        assert said["certificates"][0]["fingerprint"]
        wrong = problems(url, *ca, "--topology", topology, "--cluster", "tokyo")
        assert "as tokyo.sites.spillover: Hostname mismatch" in wrong[url]
        assert "self-signed certificate" in problems(url)[url]
    assert main(["tls", "check", url]) == 1
    assert capsys.readouterr().err.startswith(f"spillover: no TLS at {url}: ")


def in_between(directory, lasts):
    """As cert-manager lays a node's files out, signed by a CA that its root has signed."""
    root = Authority("root")
    middle = Authority("middle", by=root, lasts=lasts)
    leaf, key = middle.sign("paris.sites.spillover", "paris.example.")
    directory.mkdir()
    for name, content in (("tls.crt", leaf + middle.pem), ("tls.key", key), ("ca.crt", root.pem)):
        (directory / name).touch(mode=0o600)
        (directory / name).write_bytes(content)
    return directory


def test_what_is_sent_along_is_checked_too(topology, tmp_path, tls, problems):
    """In files and at a door; and a host is the same with a dot at its end."""
    topology.write_text(TOPOLOGY.replace("paris.example", "paris.example."))
    named = ("--topology", topology, "--cluster", "paris")
    soon = in_between(tmp_path / "paris", timedelta(days=5))
    wrong = problems(soon, *named)
    between = f"{soon / 'tls.crt'}, CN=middle"
    assert "expected 14 days more: it ends at " in wrong[between]
    assert "10.0.0.1" in wrong[str(soon / "tls.crt")]  # the one host of its urls that is missing
    assert "paris.example" not in wrong[str(soon / "tls.crt")].partition("; found")[0]
    ok = tls("check", in_between(tmp_path / "well", timedelta(days=99)))
    assert [one["days_left"] for one in ok["certificates"]] == [90, 99, 3650]
    assert "paris.example." in str(ok["certificates"][0].pop("warnings"))
    assert not any(one.get("warnings") for one in ok["certificates"])
    with door(tmp_path, "paris") as url:
        wrong = problems(url, "--ca-file", soon / "ca.crt", *named)
        assert "expected 14 days more: it ends at " in wrong[f"{url}, CN=middle"]
        assert wrong[f"{url}, CN=root"] == ""
        assert "as 127.0.0.1: IP address mismatch" in wrong[url]


def test_hosts_are_certified_without_a_dot_at_their_end(topology, tmp_path, tls):
    topology.write_text(TOPOLOGY.replace("paris.example", "Paris.Example."))
    out = tmp_path / "made"
    services = ("--service", "p1=queue.example.", "--name", "orders")
    said = tls("init", "--topology", topology, *services, "--out", out)
    assert said["clusters"]["paris"]["names"][1] == "paris.example"
    assert said["clusters"]["p1"]["names"][1] == "queue.example"


def test_what_is_wrong_with_files_is_told(made, tmp_path, tls, problems):
    certificate = made / "paris/tls.crt"
    assert tls("check", certificate)["ok"]
    assert tls("check", made / "paris")["ok"]
    other = ("--key", made / "tokyo/tls.key")
    assert "expected the key of the certificate" in str(problems(certificate, *other))
    assert "expected 91 days more" in str(problems(made, "--days-left", "91"))
    foreign = CertificateDirectory(tmp_path / "foreign")
    foreign.path.mkdir()
    (foreign.path / "ca.crt").write_bytes((made / "ca.crt").read_bytes())
    tls("renew", "--out", made, "--ca")
    tls("renew", "--out", made)
    wrong = problems(certificate, "--ca-file", foreign.path / "ca.crt")
    ca = str(foreign.path / "ca.crt")
    assert f"expected the CA that has issued {certificate}" in wrong[ca]
    (made / "paris/tls.key").chmod(0o644)
    said = tls("check", certificate)
    assert "anybody on this machine can read the key" in said["certificates"][0]["warnings"][0]


def test_the_name_must_be_that_of_the_directory(topology, made, problems):
    (made / "paris").rename(made / "lima")
    wrong = problems(made)
    assert "expected the name lima.FEDERATION.spillover" in wrong[str(made / "lima/tls.crt")]
    assert not wrong[str(made / "tokyo/tls.crt")]
    wrong = problems(made / "lima", "--topology", topology, "--cluster", "tokyo")
    expected = "expected a certificate with the DNS name (SAN) tokyo.sites.spillover"
    assert expected in wrong[str(made / "lima/tls.crt")]
    assert "paris.sites.spillover" in wrong[str(made / "lima/tls.crt")]


def test_certificates_that_have_ended_or_not_begun(topology, made, monkeypatch, problems):
    moments = {"it has ended": timedelta(days=91), "or a clock that is right": timedelta(days=-1)}
    for words, later in moments.items():
        moment = datetime.now(UTC) + later

        class Clock(datetime):
            @classmethod
            def now(cls, tz, moment=moment):
                return moment.astimezone(tz)

        monkeypatch.setattr("spillover.cli.tls.datetime", Clock)
        assert words in problems(made)[str(made / "paris/tls.crt")]


def test_topologies_that_can_have_none(topology, tmp_path, complaint):
    topology.write_text("clusters: [{id: a, servers: 1}]")
    out = tmp_path / "out"
    said = complaint("init", "--topology", topology, "--out", out)
    assert "name: expected a name: certificates hold for" in said
    assert not out.exists()


def test_bad_input_is_one_line(topology, made, tmp_path, complaint, problems):
    empty = tmp_path / "empty"
    empty.mkdir()
    file = tmp_path / "file"
    file.write_text("nothing")
    cluster = ("--topology", topology, "--cluster")
    assert "did you mean paris?" in complaint("add", *cluster, "pari", "--out", made)
    assert "expected the directory of" in complaint("add", *cluster, "paris", "--out", empty)
    assert "expected the directory of" in complaint("renew", "--out", empty)
    assert "a directory to read and write" in complaint(
        "init", "--topology", topology, "--out", file
    )
    assert "or a directory of each cluster" in complaint("check", empty)
    assert "expected a directory, a certificate" in complaint("check", tmp_path / "none")
    assert "expected without a directory" in complaint("check", made, "--key", file)
    assert "expected one of paris, tokyo" in complaint("renew", "--out", made, "--cluster", "x")
    assert "expected without --ca" in complaint(
        "renew", "--ca", "--out", made, "--cluster", "paris"
    )
    assert "PEM" in complaint("check", "https://127.0.0.1:1", "--ca-file", file)
    (made / "ca.key").write_text("no key")
    assert "expected a CA in" in complaint("renew", "--out", made)
    wrong = problems(file, "--key", made / "paris/tls.key", "--ca-file", made / "ca.crt")
    assert "expected certificates in PEM" in str(wrong)


def test_what_is_wrong_stands_with_the_file_it_is_wrong_with(made, tls, complaint, problems):
    """Of each of the three, and of the CAs of the whole directory."""
    paris = made / "paris"
    (paris / "tls.key").write_text("no key")
    (paris / "ca.crt").write_bytes((paris / "tls.crt").read_bytes())
    (made / "ca.crt").unlink()
    (made / "tokyo/tls.crt").write_bytes(BOM_UTF8 + (made / "tokyo/tls.crt").read_bytes())
    wrong = problems(made)
    assert {place for place, words in wrong.items() if words} == {
        str(made / name) for name in ("ca.crt", "paris/tls.key", "paris/ca.crt", "tokyo/tls.crt")
    }
    assert "No such file" in wrong[str(made / "ca.crt")]
    assert "expected a private key in PEM" in wrong[str(paris / "tls.key")]
    assert "expected certificates of CAs, got one for paris.sites" in wrong[str(paris / "ca.crt")]
    assert "byte order mark (BOM)" in wrong[str(made / "tokyo/tls.crt")]
    assert tls("check", made / "tokyo/ca.crt")["ok"]  # a file of CAs is one by itself
    said = complaint("check", made, "--cluster", "lima")
    assert "--cluster: expected one of paris, tokyo, got 'lima'" in said
    for url in ("https://", "https://x:99999"):
        assert "WHAT: expected" in complaint("check", url)
