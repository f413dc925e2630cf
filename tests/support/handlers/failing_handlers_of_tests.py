"""Handlers that say no in all the ways there are, by the name that the payload gives; also for Dask
workers, where nothing of Spillover is."""

from __future__ import annotations

from http import HTTPStatus


def an_error(name="odd", base=Exception, **attributes):
    """An exception of a class of its own with these attributes."""
    return type(name, (base,), attributes)("why")


class Hostile(Exception):
    """Its attributes raise what ends a process where nobody takes care."""

    @property
    def not_run(self):
        raise SystemExit(3)

    def __str__(self):
        raise ValueError("not even that")


ITSELF: list = []
ITSELF.append(ITSELF)  # which JSON cannot hold

MAKE = {
    "not run": lambda: an_error(not_run=True),
    "not run, pause": lambda: an_error(not_run=True, retry_after_s=5),
    "not run, absurd pause": lambda: an_error(not_run=True, retry_after_s=1e300),
    "not run, negative pause": lambda: an_error(not_run=True, retry_after_s=-1),
    "not run, no number": lambda: an_error(not_run=True, retry_after_s="soon"),
    "not run, nan": lambda: an_error(not_run=True, retry_after_s=float("nan")),
    "not run, true": lambda: an_error(not_run=True, retry_after_s=True),
    "not run, an exit": lambda: an_error(base=SystemExit, not_run=True),
    "rejected": lambda: an_error(rejected=True),
    "rejected, status": lambda: an_error(rejected=True, status=404, body={"a": [1]}),
    "rejected, enum": lambda: an_error(rejected=True, status=HTTPStatus.GONE),
    "rejected, odd status": lambda: an_error(rejected=True, status=200),
    "rejected, huge status": lambda: an_error(rejected=True, status=10**400),
    "rejected, text status": lambda: an_error(rejected=True, status="404"),
    "rejected, odd body": lambda: an_error(rejected=True, status=409, body=object()),
    "rejected, endless body": lambda: an_error(rejected=True, status=409, body=ITSELF),
    "rejected, long body": lambda: an_error(rejected=True, status=409, body="a" * 10**6),
    "both": lambda: an_error(rejected=True, not_run=True),
    "not quite": lambda: an_error(not_run=1, rejected="yes", status=404),
    "denied": lambda: an_error(not_run=False, rejected=None),
    "hostile": Hostile,
}


def say_no(payload):
    error = MAKE[payload]()
    raise error


async def say_no_later(payload):
    error = MAKE[payload]()
    raise error


def say_no_by_class(payload):
    from spillover.handlers import NotRun, Rejected

    if "pause_s" in payload:
        raise NotRun("the GPU is gone", retry_after_s=payload["pause_s"])
    raise Rejected("expected audio", **payload)
