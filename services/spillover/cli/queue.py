"""`spillover queue`: run one producer of the distributed queue, until SIGTERM or Ctrl-C.
`queue_work` has `spillover queue work`, and `queue_put_back` has `spillover queue put-back`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import uvloop

from spillover.apps.http.token_files import TokenFiles
from spillover.apps.queue.server import serve_producer
from spillover.cli import queue_put_back, queue_work
from spillover.cli.parsing import add_log_format, add_tokens, address
from spillover.cli.tls_options import add_tls_options, tls_files
from spillover.commandline.api_token import Headers, add_token_file, token_headers
from spillover.commandline.option_types import above_zero, at_least_zero, whole_number
from spillover.commandline.parsing import add_command, add_json, run_subcommand
from spillover.core.queue.settings import ProducerSettings
from spillover.live.process.line_writer import LineWriter
from spillover.live.process.logs import configure_logs
from spillover.live.process.memory_limit import default_held_limit_bytes
from spillover.live.queue.certified import CertifiedProducers, certify
from spillover.live.queue.store import ObjectStore
from spillover.live.queue.wire import ID_LENGTH_MAX, PRODUCERS_MAX
from spillover.model.addresses import is_plain_url
from spillover.model.errors import InputError
from spillover.model.topology import CLUSTER_ID

OBJECT_LIMIT_BYTES = 16 * 1024 * 1024

run = run_subcommand


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--id", metavar="ID",
        help="the producer's id, which no other producer of the queue has; required without a "
        "COMMAND",
    )  # fmt: skip
    parser.add_argument(
        "--bind", type=address, default=("127.0.0.1", 0), metavar="HOST:PORT",
        help="serve at this address (default 127.0.0.1:0, any port that is free; the first line "
        "tells)",
    )  # fmt: skip
    parser.add_argument(
        "--peer", action="append", default=[], metavar="ID=URL",
        help="another producer of the queue; give it for each of them. The own one may be among "
        "them: its URL is where consumers reach it then, unless --url says",
    )  # fmt: skip
    parser.add_argument(
        "--url",
        metavar="URL",
        help="the URL where consumers reach this producer (default: where it listens)",
    )
    _add_limits(parser)
    parser.add_argument(
        "--store", type=Path, metavar="DIR",
        help="keep objects in this directory, so that they outlive this process (default: in "
        "memory only)",
    )  # fmt: skip
    parser.add_argument(
        "--drain-timeout-s", type=at_least_zero, default=30.0, metavar="S",
        help="wait at most so many seconds after SIGTERM for objects to be taken",
    )  # fmt: skip
    parser.add_argument(
        "--end-with-stdin", action="store_true",
        help="end at once when standard input ends: whoever started the producer has died",
    )  # fmt: skip
    add_json(parser, "accepted for symmetry: once ready, one JSON line is on stdout in any case")
    add_tls_options(
        parser,
        "the producer's certificate in PEM, with which all that it says and hears is TLS",
        "certificates of the CAs that vouch for the other producers",
    )
    add_log_format(parser)
    add_tokens(parser)
    add_token_file(parser)
    parser.set_defaults(command=_run_producer)
    _add_commands(parser)


def _add_commands(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="COMMAND", required=False)
    for name, module in {"work": queue_work, "put-back": queue_put_back}.items():
        module.configure(
            add_command(commands, name, module.SUMMARY, module.run, module.DESCRIPTION)
        )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--buffers", type=whole_number, default=5, metavar="N",
        help="hold so many objects that nobody has been granted",
    )  # fmt: skip
    parser.add_argument(
        "--object-limit-bytes", type=whole_number, default=OBJECT_LIMIT_BYTES, metavar="BYTES",
        help="refuse larger objects with 413",
    )  # fmt: skip
    parser.add_argument(
        "--held-limit-bytes", type=whole_number, metavar="BYTES",
        help="let producers wait with so many bytes of objects in memory (default: a quarter of "
        "the memory at hand)",
    )  # fmt: skip
    parser.add_argument(
        "--visibility-ms", type=above_zero, default=30_000.0, metavar="MS",
        help="take an object back if it is not acknowledged within this time",
    )  # fmt: skip
    parser.add_argument(
        "--probe-expiry-ms", type=above_zero, default=5_000.0, metavar="MS",
        help="let a consumer that waits look at all producers again after so long",
    )  # fmt: skip
    parser.add_argument(
        "--deliveries-max", type=whole_number, default=10, metavar="N",
        help="move an object to /dead after so many grants in vain",
    )  # fmt: skip
    parser.add_argument(
        "--retry-ms", type=at_least_zero, default=1_000.0, metavar="MS",
        help="let an object that was given back as not handled rest this long, and twice as "
        "long each further time; 0: not at all",
    )  # fmt: skip
    parser.add_argument(
        "--retry-max-ms", type=at_least_zero, default=60_000.0, metavar="MS",
        help="let an object rest for at most so long",
    )  # fmt: skip


def _run_producer(options: argparse.Namespace) -> int:
    if options.id is None:
        raise InputError("usage", "", "the following arguments are required: --id")
    _check_id("--id", options.id)
    for name in ("buffers", "deliveries_max", "object_limit_bytes", "held_limit_bytes"):
        if (value := getattr(options, name)) is not None and value < 1:
            option = f"--{name.replace('_', '-')}"
            raise InputError(option, "", f"expected a number of at least 1, got {value}")
    if options.url is not None and not is_plain_url(options.url):
        raise InputError("--url", "", f"expected http(s)://HOST[:PORT], got {options.url!r}")
    peers = _peers(options.peer)
    own_url = peers.pop(options.id, None)
    shown = _shown(options, peers)
    certified = _certified(options, options.url or own_url, peers)
    configure_logs(
        options.id, as_json=options.log_format == "json", log_requests=False, role="producer"
    )
    lines = LineWriter(sys.stdout.fileno())
    try:
        serving = _serving(options, peers, options.url or own_url, shown, certified, lines.write)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serving)
    finally:
        lines.close()
    return 0


def _serving(
    options: argparse.Namespace,
    peers: Mapping[str, str],
    url: str | None,
    shown: Headers,
    certified: CertifiedProducers | None,
    tell: Callable[[str], None],
) -> Coroutine[Any, Any, None]:
    store = None
    if options.store is not None:
        store = ObjectStore(options.store, options.id, "--store")
    ready = {"producer": options.id, "durable": store is not None}
    return serve_producer(
        settings_of(options),
        peers,
        store,
        bind=options.bind,
        object_limit_bytes=options.object_limit_bytes,
        url=url,
        end_with_stdin=options.end_with_stdin,
        drain_timeout_s=options.drain_timeout_s,
        token_files=TokenFiles(options.tokens) if options.tokens else None,
        shown=shown,
        certified=certified,
        on_ready=lambda at: tell(json.dumps({"ready": True, **ready, "url": at})),
    )


def settings_of(options: argparse.Namespace) -> ProducerSettings:
    """Returns those of the producer."""
    return ProducerSettings(
        id=options.id,
        buffers=options.buffers,
        visibility_s=options.visibility_ms / 1e3,
        probe_expiry_s=options.probe_expiry_ms / 1e3,
        deliveries_max=options.deliveries_max,
        retry_s=options.retry_ms / 1e3,
        retry_s_max=max(options.retry_ms, options.retry_max_ms) / 1e3,
        held_limit_bytes=options.held_limit_bytes or default_held_limit_bytes(),
    )


def _shown(options: argparse.Namespace, peers: Mapping[str, str]) -> Headers:
    """Returns the headers that show the producer's own API token to the others."""
    shown = token_headers(options)
    if options.tokens and peers and not shown:
        expected = "expected the secret of an API token with the role submit, to show to the other"
        raise InputError("--token-file", "", f"{expected} producers; got none")
    return shown


def _certified(
    options: argparse.Namespace, own_url: str | None, peers: Mapping[str, str]
) -> CertifiedProducers | None:
    """Returns the producer's certificate and the CAs that it believes; None where it speaks no
    TLS."""
    files = tls_files(options, wants_ca=bool(peers))
    if files is None:
        return None
    option = "--peer" if options.url is None else "--url"
    told = [] if own_url is None else [(option, own_url)]
    for name, url in [*told, *(("--peer", url) for url in peers.values())]:
        if not url.startswith("https:"):
            expected = f"expected https:// where producers have certificates, got {url!r}"
            raise InputError(name, "", expected)
    return certify(files, options.id, peers)


def _peers(told: list[str]) -> dict[str, str]:
    peers: dict[str, str] = {}
    for one in told:
        name, equals, url = one.partition("=")
        if not equals or not is_plain_url(url):
            raise InputError("--peer", "", f"expected ID=http(s)://HOST[:PORT], got {one!r}")
        _check_id("--peer", name)
        if name in peers:
            raise InputError("--peer", "", f"expected ids that differ, got {name!r} twice")
        if url in peers.values():
            raise InputError("--peer", "", f"expected urls that differ, got {url!r} twice")
        peers[name] = url
    if len(peers) >= PRODUCERS_MAX:
        expected = f"expected fewer than {PRODUCERS_MAX} peers, got {len(peers)}"
        raise InputError("--peer", "", expected)
    return peers


def _check_id(option: str, name: str) -> None:
    if not CLUSTER_ID.fullmatch(name):
        expected = f"expected 1 to {ID_LENGTH_MAX} of A-Z a-z 0-9 . _ -, got {name!r}"
        raise InputError(option, "", expected)
