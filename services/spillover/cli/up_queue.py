"""`spillover up --queue N`: producers of the distributed queue that know each other, on this
machine, until Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path

from spillover.model.errors import RunError
from spillover.testbed.producers import FIRST_PORT, ProducerBed


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    return asyncio.run(_up(options))


async def _up(options: argparse.Namespace) -> int:
    stores = None if options.store is None else Path(options.store)
    bed = ProducerBed(
        options.queue,
        stores=stores,
        drain_timeout_s=options.drain_timeout_s,
        first_port=options.port or FIRST_PORT,
        tokens=options.tokens,
    )
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            bed.kill()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)
    async with bed:
        _tell_ready(bed, as_json=options.json)
        dead = asyncio.create_task(bed.first_dead())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((dead, stopping), return_when=asyncio.FIRST_COMPLETED)
        dead.cancel()
        stopping.cancel()
        if not stop.is_set() and dead.done():
            name = dead.result()
            raise RunError(f"producer {name} has ended: {bed.last_words(name)}")
    return 0


def _tell_ready(bed: ProducerBed, *, as_json: bool) -> None:
    first = next(iter(bed.urls.values()))
    if as_json:
        logs = {name: str(path) for name, path in bed.logs.items()}
        ready = {"ready": True, "producers": bed.urls, "console": f"{first}/console"}
        print(json.dumps({**ready, "logs": logs}), flush=True)
        return
    lines = [f"producer {name}  {url}" for name, url in bed.urls.items()]
    lines.append(f"{len(bed.urls)} producers are up; Ctrl-C ends them. Try:")
    lines.append(f"  {first}/console  in a browser, live")
    lines.append(f"  spillover status {first}")
    lines.append(f"  curl {first}/objects -d 'an object'")
    asked = '{"consumer": "me", "probe_id": "one"}'
    lines.append(f"  curl -i -L {first}/take -d '{asked}'")
    print("\n".join(lines), file=sys.stderr)
