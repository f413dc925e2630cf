"""Handlers that the tests of the workers run, also in worker processes."""

import asyncio
import os
import signal
import threading

RELEASE = threading.Event()
SEEN = []
HELD = []


def echo(payload):
    return {"echo": payload, "process": os.getpid()}


async def soon(payload):
    return payload


def fail(payload):
    raise ValueError(f"no\nway {payload}")


def stop_iteration(payload):
    return next(iter(()))


def leave(payload):
    raise SystemExit(3)


async def leave_async(payload):
    raise SystemExit(3)


async def cancel_itself(payload):
    raise asyncio.CancelledError


class Odd(Exception):
    """Cannot be rebuilt in another process, nor told in plain UTF-8."""

    def __init__(self, one, two):
        super().__init__("\udcff")
        self.given = one, two


def odd(payload):
    raise Odd(1, 2)


def huge(payload):
    return "x" * (33 * 1024 * 1024)


def die(payload):
    if payload == "die":
        os._exit(7)
    return os.getpid()


def eat(payload):
    """Hold on to so many mebibytes for ever, each piece small enough to be had."""
    HELD.extend(bytearray(1 << 20) for _ in range(payload))
    return os.getpid()


def hang(payload):
    """For so many seconds, or die if there are fewer than none."""
    if payload < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait(payload)
    return os.getpid()


def fork(payload):
    """Leave a child that sleeps for so many seconds; then hang, die, or return its id."""
    seconds, then = payload
    child = os.fork()
    if not child:
        threading.Event().wait(seconds)
        os._exit(0)
    if then == "hang":
        threading.Event().wait(60)
    if then == "die":
        os._exit(7)
    return child


def fork_back(payload):
    """Return twice: the child does too."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return [payload, bool(child)]


def stubborn(payload, ctx):
    RELEASE.wait(20)
    SEEN.append(ctx.cancelled)
    return "too late"


call_me = lambda payload: payload  # noqa: E731 - has no name that could be sent to a process
