"""`spillover up --queue N`: run producers of the distributed queue that know each other, on this
machine, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from spillover.cli.up_told import commands, curl, invitation
from spillover.commandline.output import tell
from spillover.live.process.hangup import on_hangup
from spillover.model.errors import RunError
from spillover.testbed.certified import Certify
from spillover.testbed.producers import FIRST_PORT, ProducerBed


def run(options: argparse.Namespace, certify: Certify | None) -> int:
    """Run the command; its exit status. With `certify` producers have certificates."""
    return asyncio.run(_up(options, certify))


def _bed_of(options: argparse.Namespace, certify: Certify | None) -> ProducerBed:
    return ProducerBed(
        options.queue,
        stores=None if options.store is None else Path(options.store),
        drain_timeout_s=options.drain_timeout_s,
        first_port=options.port or FIRST_PORT,
        tokens=options.tokens,
        certify=certify,
    )


async def _up(options: argparse.Namespace, certify: Certify | None) -> int:
    bed = _bed_of(options, certify)
    reread = bed.reread if certify or options.tokens else _say_nothing_changes
    stop = stop_by_signals(bed.kill, [reread])
    async with bed:
        _tell_ready(bed, as_json=options.json, has_tokens=bool(options.tokens))
        dead = asyncio.create_task(bed.first_dead())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((dead, stopping), return_when=asyncio.FIRST_COMPLETED)
        dead.cancel()
        stopping.cancel()
        if not stop.is_set() and dead.done():
            name = dead.result()
            raise RunError(f"producer {name} has ended: {bed.last_words(name)}")
    return 0


def stop_by_signals(
    kill: Callable[[], None], rereads: Sequence[Callable[[], None]]
) -> asyncio.Event:
    """Returns what SIGINT and SIGTERM set; a second one kills all. `rereads` are for SIGHUP."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            kill()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    on_hangup(rereads, on_signal)
    return stop


def _say_nothing_changes() -> None:
    tell("SIGHUP changes nothing: producers have no files to read again")


def _tell_ready(bed: ProducerBed, *, as_json: bool, has_tokens: bool) -> None:
    first, ca_file = next(iter(bed.urls.values())), bed.certified.ca_file
    if as_json:
        logs = {name: str(path) for name, path in bed.logs.items()}
        ready = {"ready": True, "producers": bed.urls, "console": f"{first}/console"}
        secure = {} if ca_file is None else {"ca_file": str(ca_file)}
        print(json.dumps({**ready, **secure, "logs": logs}), flush=True)
        return
    lines = [f"producer {name}  {url}" for name, url in bed.urls.items()]
    words = invitation(has_tokens=has_tokens)
    lines.append(f"{len(bed.urls)} producers are up; Ctrl-C ends them. {words}")
    lines.append(f"  {first}/console  in a browser, live")
    lines += commands(first, ca_file)
    asked = '{"consumer": "me", "probe_id": "one"}'
    # To another producer, that is: curl takes a port for a stranger, to whom it shows no header.
    follow = "--location-trusted" if has_tokens else "-L"
    for words in (f"{first}/objects -d 'an object'", f"-i {follow} {first}/take -d '{asked}'"):
        lines.append(curl(words, ca_file, has_tokens=has_tokens))
    print("\n".join(lines), file=sys.stderr)
