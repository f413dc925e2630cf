"""`spillover tls init|add|renew|check`: make and check certificates for a federation of one's own.
Nodes take certificates from elsewhere, too."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillover.cli.parsing import whole_number_in
from spillover.commandline.output import tell
from spillover.commandline.parsing import add_command, add_json
from spillover.inputs.topology_file import load_topology
from spillover.inputs.yaml_file import shown_path
from spillover.model.certified_names import problem_with_federation
from spillover.model.errors import InputError
from spillover.model.extras import check_extra
from spillover.model.nearest import did_you_mean
from spillover.model.topology import Topology

if TYPE_CHECKING:
    from spillover.certificates.checking import CheckResult
    from spillover.certificates.directory import CertificateDirectory
    from spillover.certificates.names import CertificateHolder

DAYS = 90
DAYS_MAX = 3650
DAYS_LEFT = 14
OUT = "certificates"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands and their options."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    init = add_command(
        commands,
        "init",
        "make a CA, and a certificate for each cluster, producer and lease member",
        _init,
    )
    _add_topology(init)
    _add_services(init, "the topology's")
    _add_making(init)
    add = add_command(
        commands, "add", "make a certificate for one more cluster, producer or lease member", _add
    )
    _add_topology(add)
    add.add_argument("--cluster", metavar="ID", help="the cluster of the topology to make it for")
    _add_services(add, "that of `tls init`")
    _add_making(add)
    _configure_renew(commands)
    _configure_check(commands)


def _configure_renew(commands: Any) -> None:
    renew = add_command(
        commands, "renew", "make new certificates with new keys, or change the CA", _renew
    )
    _add_topology(renew)
    renew.add_argument(
        "--cluster", action="append", metavar="ID",
        help="renew only this one's; may be repeated (default: all in the directory)",
    )  # fmt: skip
    step = renew.add_mutually_exclusive_group()
    step.add_argument(
        "--ca", action="store_true",
        help="make a second CA and have both trusted; then copy the files to the nodes, `renew`, "
        "copy again, `renew --drop-old-ca`, and copy once more",
    )  # fmt: skip
    step.add_argument(
        "--drop-old-ca", action="store_true", help="have only the newest CA trusted, at the end"
    )
    _add_making(renew, overwrites=True)


def _configure_check(commands: Any) -> None:
    check = add_command(
        commands, "check", "list certificates, and what is wrong with them (exit status 1)", _check
    )
    check.add_argument(
        "what", metavar="WHAT",
        help="a directory of `tls init` or of one node, a certificate, or https://HOST:PORT",
    )  # fmt: skip
    _add_topology(check)
    check.add_argument(
        "--cluster",
        metavar="ID",
        help="expect certificates of this cluster (default: what the directory says)",
    )
    check.add_argument(
        "--key", metavar="FILE", help="the certificate's key (default: tls.key beside it)"
    )
    check.add_argument(
        "--ca-file", metavar="FILE",
        help="believe the CAs in this file (default: ca.crt beside a certificate; where a url "
        "is given, as for other commands)",
    )  # fmt: skip
    check.add_argument(
        "--days-left", type=whole_number_in(0, DAYS_MAX), default=DAYS_LEFT, metavar="DAYS",
        help="complain of certificates that hold for fewer days",
    )  # fmt: skip
    add_json(check, "print one JSON object on stdout")


def _add_topology(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topology", metavar="T",
        help="the topology, which has the clusters and their urls: a YAML file, or a built-in name",
    )  # fmt: skip


def _add_services(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--service", action="append", default=[], metavar="ID[=HOST,...]",
        help="a producer of the queue or a lease member, and the hosts (or https:// urls) under "
        "which it is called; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--name", metavar="NAME",
        help=f"with --service: the queue's, or the group's (default: {default}); they prove to be "
        "ID.NAME.spillover",
    )  # fmt: skip


def _add_making(parser: argparse.ArgumentParser, *, overwrites: bool = False) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path(OUT), metavar="DIR", help="write to this directory"
    )
    parser.add_argument(
        "--days", type=whole_number_in(1, DAYS_MAX), default=DAYS, metavar="DAYS",
        help="let certificates hold so many days; a CA holds ten years",
    )  # fmt: skip
    if not overwrites:
        parser.add_argument("--force", action="store_true", help="replace keys that are there")
    add_json(parser, "print one JSON object on stdout")


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; its exit status."""
    check_extra("spillover tls", "tls", "cryptography")
    status: int = options.command(options)
    return status


def _init(options: argparse.Namespace) -> int:
    from spillover.certificates.names import holders_of

    topology = None if options.topology is None else _topology(options)
    if topology is None and not (options.service and options.name):
        expected = "expected a file or a built-in name, or --name and --service"
        raise InputError("--topology", "", expected)
    name = options.name if topology is None else topology.name
    clusters = [] if topology is None else holders_of(topology)
    holders = [*clusters, *_services(options, name)]
    _check_apart(holders)
    directory, now = _directory(options), datetime.now(UTC)
    directory.make(name, holders, now, options.days, force=options.force)
    return _tell_made(options, directory, [holder.id for holder in holders], now)


def _add(options: argparse.Namespace) -> int:
    from spillover.certificates.names import holders_of

    if (options.topology is None) != (options.cluster is None):
        given, other = ("--cluster", "--topology")[:: 1 if options.topology is None else -1]
        raise InputError(other, "", f"expected along with {given}")
    if options.cluster is None and not options.service:
        raise InputError("--cluster", "", "expected one of the topology, or --service")
    holders = []
    if options.topology is not None:
        topology = _topology(options)
        _check_known(options.cluster, topology.cluster_ids)
        holders = [one for one in holders_of(topology) if one.id == options.cluster]
    directory, now = _directory(options), datetime.now(UTC)
    holders += _services(options, directory.name() if options.service else "")
    _check_apart(holders)
    directory.add(holders, now, options.days, force=options.force)
    return _tell_made(options, directory, [holder.id for holder in holders], now)


def _services(options: argparse.Namespace, name: str) -> list[CertificateHolder]:
    """Returns the holders of --service; `name` is theirs unless --name is given."""
    from spillover.certificates.names import service_holder

    if options.name is not None:
        if not options.service:
            raise InputError("--name", "", "expected along with --service")
        problem = problem_with_federation(options.name)
        if problem is not None:
            raise InputError("--name", "", problem)
    return [service_holder(told, options.name or name) for told in options.service]


def _check_apart(holders: Sequence[CertificateHolder]) -> None:
    """Raise InputError where two share a directory, also where that knows no upper case."""
    seen: set[str] = set()
    for holder in holders:
        if holder.id.lower() in seen:
            raise InputError("--service", "", f"expected ids that differ, got {holder.id!r} twice")
        seen.add(holder.id.lower())


def _renew(options: argparse.Namespace) -> int:
    topology = None if options.topology is None else _topology(options)
    directory, now = _directory(options), datetime.now(UTC)
    there = directory.clusters()
    for cluster in options.cluster or ():
        _check_known(cluster, there)
    if options.ca or options.drop_old_ca:
        if options.cluster:
            raise InputError("--cluster", "", "expected without --ca: a CA is that of all")
        if options.ca:
            directory.renew_ca(now)
        else:
            directory.drop_old_ca()
        return _tell_made(options, directory, there, now)
    clusters = options.cluster or there
    directory.renew(clusters, topology, now, options.days)
    return _tell_made(options, directory, clusters, now)


def _check(options: argparse.Namespace) -> int:
    from spillover.certificates.checking import (
        Wanted,
        check_cas,
        check_directory,
        check_files,
        check_url,
    )
    from spillover.live.tls.material import TlsFiles

    topology = None if options.topology is None else _topology(options)
    if topology is not None and options.cluster is not None:
        _check_known(options.cluster, topology.cluster_ids)
    now = datetime.now(UTC)
    wanted = Wanted.of(topology, options.cluster, options.days_left)
    path = Path(options.what or "nothing")
    if options.what.startswith("https://"):
        found = check_url(options.what, options.ca_file, wanted, now)
    elif path.is_dir():
        for name in ("key", "ca_file"):
            if getattr(options, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise InputError(option, "", "expected without a directory, which has its own")
        found = check_directory(path, topology, options.cluster, options.days_left, now)
    elif path.exists() and _has_cas_alone(options.what):
        found = check_cas(options.what, options.days_left, now)
    elif path.exists():
        key, ca = (path.with_name(name) for name in ("tls.key", "ca.crt"))
        files = TlsFiles(
            cert=options.what, key=options.key or str(key), ca=options.ca_file or str(ca)
        )
        found = check_files(files, wanted, now)
    else:
        expected = f"expected a directory, a certificate or https://HOST:PORT, got {options.what!r}"
        raise InputError("WHAT", "", expected)
    return _tell_found(found, as_json=options.json)


def _has_cas_alone(file: str) -> bool:
    from spillover.live.tls.material import is_ca, read_certificates

    try:
        return all(map(is_ca, read_certificates(file)))
    except InputError:
        return False


def _topology(options: argparse.Namespace) -> Topology:
    from spillover.certificates.names import check_topology

    topology = load_topology(options.topology)
    check_topology(topology, shown_path(options.topology))
    return topology


def _directory(options: argparse.Namespace) -> CertificateDirectory:
    from spillover.certificates.directory import CertificateDirectory

    return CertificateDirectory(options.out)


def _check_known(cluster: str, known: Sequence[str]) -> None:
    if cluster not in known:
        hint = did_you_mean(cluster, known)
        expected = f"expected one of {', '.join(known) or 'none'}, got {cluster!r}{hint}"
        raise InputError("--cluster", "", expected)


def _tell_made(
    options: argparse.Namespace,
    directory: CertificateDirectory,
    clusters: Sequence[str],
    now: datetime,
) -> int:
    from spillover.certificates.checking import check_cas, describe
    from spillover.certificates.directory import CA_FILE, LEAF_FILE

    leaves = {
        cluster: describe(directory.leaf(cluster), directory.path / cluster / LEAF_FILE, now)
        for cluster in clusters
    }
    cas = check_cas(str(directory.path / CA_FILE), 0, now)
    if options.json:
        told = {
            "directory": str(directory.path),
            "cas": [asdict(ca) for ca in cas],
            "clusters": {cluster: asdict(leaf) for cluster, leaf in leaves.items()},
        }
        print(json.dumps(told))
        return 0
    for cluster, leaf in leaves.items():
        print(f"{directory.path / cluster}  {', '.join(leaf.names)}  until {leaf.not_after}")
    for ca in cas:
        print(f"{ca.place}  {ca.subject}  until {ca.not_after}")
    tell(
        f"each node gets the three files of its directory, nobody {directory.path / 'ca.key'}: "
        f"`spillover tls check {directory.path}` tells what is there"
    )
    return 0


def _tell_found(found: list[CheckResult], *, as_json: bool) -> int:
    is_right = not any(one.problems for one in found)
    if as_json:
        print(json.dumps({"ok": is_right, "certificates": [asdict(one) for one in found]}))
        return 0 if is_right else 1
    for one in found:
        print(f"{one.place}: {'; '.join(one.problems) or 'as it should be'}")
        if one.fingerprint is not None:
            if one.expected is not None:
                print(f"  expected     {one.expected}")
            print(f"  subject      {one.subject}")
            print(f"  names        {', '.join(one.names) or 'none'}")
            print(f"  issuer       {one.issuer}")
            print(f"  fingerprint  sha256 {one.fingerprint}")
            print(f"  holds        {one.not_before} to {one.not_after}, {one.days_left} days left")
        for warning in one.warnings:
            print(f"  warning      {warning}")
    return 0 if is_right else 1
