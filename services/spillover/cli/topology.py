"""`spillover topology compose FILE` and `topology kubernetes FILE`: write a topology as a
deployment."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import spillover
from spillover.certificates.names import check_topology
from spillover.cli.parsing import whole_number_in
from spillover.commandline.option_types import above_zero, whole_number
from spillover.commandline.parsing import add_command, add_json
from spillover.deployment.compose import (
    CERTIFICATES,
    ComposeSettings,
    certified,
    compose_files,
    compose_text,
)
from spillover.deployment.containers import (
    CPUS,
    EXTRAS,
    IMAGE,
    MEMORY_MB,
    PRODUCERS_FILE,
    TOKENS_FILE,
    check_names,
    extras,
    has_python_handler,
    loopback_handlers,
    secret_of,
)
from spillover.deployment.files import drop_stale, put_files
from spillover.deployment.kubernetes import SITE_FILES, TLS_TOPOLOGY, kubernetes_files
from spillover.deployment.kubernetes_queue import FILE as QUEUE_FILE
from spillover.deployment.manifests import TOKENS_SECRET, KubernetesSettings
from spillover.deployment.ports import FIRST_PORT, LAST_PORT, Ports, publish
from spillover.inputs.topology_file import load_topology
from spillover.inputs.yaml_file import shown_path
from spillover.model.errors import InputError
from spillover.model.extras import check_extra
from spillover.model.topology import Topology

NETWORKS_COMFORTABLE = 28
"""Docker hands out some thirty networks, unless it is told to make them smaller."""

MEMORY_MB_MIN = 96

PRODUCERS_MAX = 100


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands and their options."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    compose = add_command(
        commands,
        "compose",
        "write a compose file: a container for each cluster, Redis, Prometheus, Grafana and load",
        _compose,
    )
    _add_shared(
        compose,
        out="compose.yaml", metavar="FILE", out_help="write the compose file here",
        tls_help="speak https between nodes and to clients, by certificates that are made beside "
        "the file",
    )  # fmt: skip
    compose.add_argument(
        "--first-port", type=whole_number, default=FIRST_PORT, metavar="PORT",
        help="publish the first cluster that has no url at this port of 127.0.0.1",
    )  # fmt: skip
    compose.add_argument(
        "--build", metavar="DIR",
        help="build the image from this checkout, as seen from the compose file (default: the "
        "one that this command runs from, if any)",
    )  # fmt: skip
    compose.add_argument(
        "--code", metavar="DIR",
        help="find the modules of python handlers in this directory, as seen from the compose "
        "file (default: the working directory, if there are such handlers)",
    )  # fmt: skip
    kubernetes = add_command(
        commands, "kubernetes", "write Kubernetes manifests for `kubectl apply -k`", _kubernetes
    )
    _add_shared(
        kubernetes,
        out="kubernetes", metavar="DIR", out_help="write the manifests to this directory",
        tls_help="speak https between nodes and to clients, by Secrets, such as cert-manager's",
    )  # fmt: skip
    kubernetes.add_argument(
        "--queue", type=whole_number_in(0, PRODUCERS_MAX), default=0, metavar="N",
        help="deploy N producers of the distributed queue too, each with a volume",
    )  # fmt: skip
    kubernetes.add_argument(
        "--tokens", action="store_true",
        help=f"let in only who shows an API token of the Secret {TOKENS_SECRET}",
    )  # fmt: skip


def _add_shared(
    parser: argparse.ArgumentParser, *, out: str, metavar: str, out_help: str, tls_help: str
) -> None:
    parser.add_argument(
        "topology", metavar="FILE",
        help="the topology: a YAML file, or a built-in name",
    )  # fmt: skip
    parser.add_argument("--out", default=out, metavar=metavar, help=out_help)
    parser.add_argument("--image", default=IMAGE, metavar="NAME", help="run nodes from this image")
    parser.add_argument(
        "--cpus", type=above_zero, default=CPUS, metavar="N", help="give each site so many CPUs"
    )
    parser.add_argument(
        "--memory-mb", type=whole_number, default=MEMORY_MB, metavar="MB",
        help="give each site so much memory, and what its worker processes may take on top",
    )  # fmt: skip
    parser.add_argument("--tls", action="store_true", help=tls_help)
    parser.add_argument("--force", action="store_true", help="replace files that are there")
    add_json(parser, "print what was written as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; its exit status."""
    topology = load_topology(options.topology)
    check_names(topology, shown_path(options.topology))
    if options.memory_mb < MEMORY_MB_MIN:
        expected = f"expected at least {MEMORY_MB_MIN}, got {options.memory_mb}"
        raise InputError("--memory-mb", "", expected)
    if options.tls:
        check_topology(topology, shown_path(options.topology))
    status: int = options.command(topology, options)
    return status


def _compose(topology: Topology, options: argparse.Namespace) -> int:
    if not 1 <= options.first_port <= LAST_PORT:
        expected = f"expected 1 to {LAST_PORT}, got {options.first_port}"
        raise InputError("--first-port", "", expected)
    out = Path(options.out)
    if out.is_dir() or not out.name:
        raise InputError("--out", "", f"expected a file to write, got the directory {options.out}")
    ports = publish(topology, shown_path(options.topology), options.first_port)
    settings = ComposeSettings(
        ports=ports,
        image=options.image,
        build=options.build or _checkout(out.parent),
        code=options.code or _code(topology, out.parent),
        cpus=options.cpus,
        memory_mb=options.memory_mb,
        tls=options.tls,
    )
    files = {out.name: compose_text(topology, settings), **compose_files(topology, settings)}
    if options.tls:
        check_extra("--tls", "tls", "cryptography")
        whole = certified(topology, shown_path(options.topology))
    written = put_files(out.parent, files, force=options.force)
    if options.tls:
        _certify(whole, out.parent / CERTIFICATES)
    result = _published(ports, "https" if options.tls else "http")
    _tell(topology, options, written, result)
    for cluster, url in result["proxies"].items():
        _say(f"clients of the service behind cluster {cluster} come in at {url}")
    if len(topology.clusters) + 2 > NETWORKS_COMFORTABLE:
        _say(
            f"{len(topology.clusters)} sites are as many networks: give Docker smaller ones "
            "(default-address-pools in daemon.json)"
        )
    if settings.build is None:
        _say(f"the image {options.image} is taken as it is, and Grafana comes without dashboards")
        _say_extras(topology, options)
    for line in loopback_handlers(topology):
        _say(line)
    # An image that is there already may lack what these handlers need.
    anew = settings.build is not None and extras(topology, tls=options.tls) != EXTRAS
    user = 'SPILLOVER_USER="$(id -u):$(id -g)" ' if options.tls else ""
    _say(f"start it: {user}docker compose -f {options.out} up {'--build ' if anew else ''}--wait")
    return 0


def _published(ports: Ports, scheme: str) -> dict[str, Any]:
    """Returns the urls of all services as this machine reaches them."""
    urls, doors = (
        {cluster: f"{scheme}://127.0.0.1:{port}" for cluster, port in published.items()}
        for published in (ports.clusters, ports.proxies)
    )
    return {
        "clusters": urls,
        "proxies": doors,
        "prometheus": f"http://127.0.0.1:{ports.prometheus}",
        "grafana": f"http://127.0.0.1:{ports.grafana}",
        "redis": f"redis://127.0.0.1:{ports.redis}/0",
    }


def _kubernetes(topology: Topology, options: argparse.Namespace) -> int:
    out = Path(options.out)
    if out.exists() and not out.is_dir():
        raise InputError("--out", "", f"expected a directory, got the file {options.out}")
    settings = KubernetesSettings(
        image=options.image,
        cpus=options.cpus,
        memory_mb=options.memory_mb,
        producers=options.queue,
        tls=options.tls,
        tokens=options.tokens,
    )
    files = kubernetes_files(topology, settings, shown_path(options.topology))
    written = put_files(out, files, force=options.force)
    drop_stale(out, SITE_FILES, written)
    drop_stale(out, QUEUE_FILE, written)
    _tell(topology, options, written, {"clusters": list(topology.cluster_ids)})
    if has_python_handler(topology):
        _say("python handlers: the image must hold their modules, in its working directory")
    _say_extras(topology, options)
    if options.tls:
        _say(f"certificates: cert-manager, or spillover tls init --topology {out / TLS_TOPOLOGY}")
        secret = f"{secret_of('ID')} --from-file=certificates/ID"
        _say(
            "each site and producer has its own, with tls.crt, tls.key and ca.crt: kubectl "
            f"-n spillover create secret generic {secret}"
        )
    if options.tokens:
        _say_tokens(has_queue=options.queue > 0)
    for line in loopback_handlers(topology):
        _say(line)
    _say(f"start it: kubectl apply -k {options.out}")
    return 0


def _checkout(directory: Path) -> str | None:
    """Returns the checkout that this command runs from, as seen from `directory`."""
    root = Path(spillover.__file__).resolve().parents[2]
    if not (root / "deploy" / "Dockerfile").is_file():
        return None
    return _seen_from(directory, root)


def _code(topology: Topology, directory: Path) -> str | None:
    if not has_python_handler(topology):
        return None
    return _seen_from(directory, Path.cwd())


def _seen_from(directory: Path, path: Path) -> str:
    """Returns a relative path that begins with a dot: compose takes others for names of volumes."""
    seen = os.path.relpath(path, directory.resolve())
    return seen if seen.startswith(".") else f"./{seen}"


def _tell(
    topology: Topology, options: argparse.Namespace, written: list[Path], result: dict[str, Any]
) -> None:
    if options.json:
        files = [str(path) for path in written]
        print(json.dumps({"topology": topology.name, **result, "files": files}), flush=True)
    _say(f"{len(written)} files for {len(topology.clusters)} clusters, first {written[0]}")


def _say_extras(topology: Topology, options: argparse.Namespace) -> None:
    """Print which extras the image needs; nodes without them end at once."""
    needed = extras(topology, tls=options.tls)
    if needed != EXTRAS:
        why = " and ".join(["dask handlers"] * ("dask" in needed) + ["--tls"] * options.tls)
        _say(f'{why}: the image {options.image} must be built with EXTRAS="{" ".join(needed)}"')


def _say_tokens(*, has_queue: bool) -> None:
    """Print how to make the Secret. Pods show tokens from files of it, by these names."""
    new = "spillover token new --append tokens.yaml"
    files = [TOKENS_FILE]
    # For Prometheus, which has to show it: `authorization` of its scrape configuration.
    lines = [f"{new} --name prometheus --role read > prometheus"]
    if has_queue:
        files.append(PRODUCERS_FILE)
        lines.append(f"{new} --name producers --role submit --tenant queue > {PRODUCERS_FILE}")
    told = " ".join(f"--from-file={file}" for file in files)
    lines.append(f"kubectl -n spillover create secret generic {TOKENS_SECRET} {told}")
    _say("API tokens, with those of your clients:")
    for line in lines:
        _say(f"  {line}")


def _certify(topology: Topology, directory: Path) -> None:
    from spillover.certificates.directory import CertificateDirectory

    CertificateDirectory(directory).complete(topology, datetime.now(UTC))
    _say(f"certificates are in {directory}, `spillover tls renew` renews them")


def _say(line: str) -> None:
    print(line, file=sys.stderr)
