"""`spillover tls init|add|renew|check`: certificates for a federation of one's own, made and
checked. Nodes take them from wherever they are from."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillover.cli.parsing import whole_number_in
from spillover.inputs.topology_file import load_topology
from spillover.inputs.yaml_file import shown_path
from spillover.model.certified_names import problem_with_federation
from spillover.model.errors import InputError
from spillover.model.extras import check_extra
from spillover.model.nearest import did_you_mean
from spillover.model.topology import Topology

if TYPE_CHECKING:
    from spillover.tools.certificates.checking import Found
    from spillover.tools.certificates.directory import CertificateDirectory
    from spillover.tools.certificates.names import Holder

DAYS = 90
DAYS_MAX = 3650
DAYS_LEFT = 14
OUT = "certificates"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands and their options."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    summary = "make a CA, and a certificate for each cluster, producer and lease member"
    init = commands.add_parser("init", help=summary, description=summary, allow_abbrev=False)
    _add_topology(init, required=False)
    _add_services(init, "the topology's")
    _add_making(init)
    init.set_defaults(command=_init)
    summary = "make a certificate for one more cluster, producer or lease member"
    add = commands.add_parser("add", help=summary, description=summary, allow_abbrev=False)
    _add_topology(add, required=False)
    add.add_argument("--cluster", metavar="ID", help="which of its clusters")
    _add_services(add, "that of `tls init`")
    _add_making(add)
    add.set_defaults(command=_add)
    _configure_renew(commands)
    _configure_check(commands)


def _configure_renew(commands: Any) -> None:
    summary = "make new certificates with new keys, or change the CA"
    renew = commands.add_parser("renew", help=summary, description=summary, allow_abbrev=False)
    _add_topology(renew, required=False)
    renew.add_argument(
        "--cluster", action="append", metavar="ID",
        help="only of this one; may be repeated (default: of all in the directory)",
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
    renew.set_defaults(command=_renew)


def _configure_check(commands: Any) -> None:
    summary = "tell what certificates are there, and what is wrong with them (exit status 1)"
    check = commands.add_parser("check", help=summary, description=summary, allow_abbrev=False)
    check.add_argument(
        "what", metavar="WHAT",
        help="a directory of `tls init` or of one node, a certificate, or https://HOST:PORT",
    )  # fmt: skip
    _add_topology(check, required=False)
    check.add_argument(
        "--cluster", metavar="ID", help="whose it should be (default: what the directory says)"
    )
    check.add_argument(
        "--key", metavar="FILE", help="of a certificate (default: tls.key beside it)"
    )
    check.add_argument(
        "--ca-file", metavar="FILE",
        help="the CAs that count (default: ca.crt beside a certificate; where a url is given, as "
        "for other commands)",
    )  # fmt: skip
    check.add_argument(
        "--days-left", type=whole_number_in(0, DAYS_MAX), default=DAYS_LEFT, metavar="DAYS",
        help=f"less is too little (default {DAYS_LEFT})",
    )  # fmt: skip
    check.add_argument("--json", action="store_true", help="one JSON object on stdout")
    check.set_defaults(command=_check)


def _add_topology(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--topology", required=required, metavar="T",
        help="a YAML file, or a built-in name: which clusters there are, and their urls",
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
        "--out", type=Path, default=Path(OUT), metavar="DIR", help=f"where (default {OUT}, here)"
    )
    parser.add_argument(
        "--days", type=whole_number_in(1, DAYS_MAX), default=DAYS, metavar="DAYS",
        help=f"how long a cluster's certificate holds (default {DAYS}; a CA ten years)",
    )  # fmt: skip
    if not overwrites:
        parser.add_argument("--force", action="store_true", help="replace keys that are there")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; its exit status."""
    check_extra("spillover tls", "tls", "cryptography")
    status: int = options.command(options)
    return status


def _init(options: argparse.Namespace) -> int:
    from spillover.tools.certificates.names import holders_of

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
    from spillover.tools.certificates.names import holders_of

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


def _services(options: argparse.Namespace, name: str) -> list[Holder]:
    """Those of --service, `name` being theirs unless told otherwise."""
    from spillover.tools.certificates.names import service_holder

    if options.name is not None:
        if not options.service:
            raise InputError("--name", "", "expected along with --service")
        problem = problem_with_federation(options.name)
        if problem is not None:
            raise InputError("--name", "", problem)
    return [service_holder(told, options.name or name) for told in options.service]


def _check_apart(holders: Sequence[Holder]) -> None:
    """Each has a directory of its own, also where that knows no upper case."""
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
    from spillover.live.tls.material import TlsFiles
    from spillover.tools.certificates.checking import (
        Wanted,
        check_cas,
        check_directory,
        check_files,
        check_url,
    )

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
    from spillover.tools.certificates.names import check_topology

    topology = load_topology(options.topology)
    check_topology(topology, shown_path(options.topology))
    return topology


def _directory(options: argparse.Namespace) -> CertificateDirectory:
    from spillover.tools.certificates.directory import CertificateDirectory

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
    from spillover.tools.certificates.checking import check_cas, describe
    from spillover.tools.certificates.directory import CA_FILE, LEAF_FILE

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
    _say(
        f"each node gets the three files of its directory, nobody {directory.path / 'ca.key'}: "
        f"`spillover tls check {directory.path}` tells what is there"
    )
    return 0


def _tell_found(found: list[Found], *, as_json: bool) -> int:
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


def _say(line: str) -> None:
    print(f"spillover: {line}", file=sys.stderr)
