"""Handlers that the workers of the tests' Dask clusters import; nothing of Spillover is there."""

import os
import threading
from pathlib import Path

_never = threading.Event()


def tell(payload, ctx):
    """What a handler may know."""
    return {
        "payload": payload,
        "id": ctx.id,
        "type": ctx.type,
        "cluster": ctx.cluster,
        "in_time": 0 < ctx.remaining_ms <= 30_000,
        "cancelled": ctx.cancelled,
        "pid": os.getpid(),
    }


def hold(payload, ctx):
    """Say that it runs, in a file; until the file `go` is there, or until its request is stopped
    if it shall `heed` that. A line in `runs` for each run."""
    directory = Path(payload["directory"])
    with (directory / "runs").open("a") as runs:
        runs.write(f"{os.getpid()} {ctx.id}\n")
    while not (directory / "go").exists():
        if ctx.cancelled:
            (directory / f"told-{ctx.id}").touch()
            if payload.get("heed"):
                return "stopped"
        _never.wait(0.01)
    return "went"
