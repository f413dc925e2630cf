"""What users give to the library by mistake is told at once, in one line that names the argument:
None of a variable that is not set, text where a number belongs, "no" where False does."""

from __future__ import annotations

import asyncio
import codecs
import os

import msgspec
import pytest

from spillover.client import (
    AsyncSpillover,
    InputError,
    LeaseGroup,
    Spillover,
    consume,
    produce,
)

NOWHERE = "http://127.0.0.1:1"
REDIS = "redis://127.0.0.1:1/0"
NAN = float("nan")


class Point(msgspec.Struct):
    """What JSON says as an object."""

    x: float


def complaint(make, *arguments, **options):
    """The one line."""
    with pytest.raises(InputError) as error:
        make(*arguments, **options)
    assert error.value.expected.startswith("expected ")
    assert "\n" not in str(error.value)
    return str(error.value)


def each(**wrong):
    """A case for each of the values."""
    return pytest.mark.parametrize(
        ("name", "value"), [(name, value) for name, all_ in wrong.items() for value in all_]
    )


@pytest.mark.parametrize("kind", [Spillover, AsyncSpillover])
@each(
    connections_max=["5", True, 2.0, None, 0],
    token=[5, b"x", "", "a\nb", True],
    retries=[5, "x", True],
    follow=["no", None, 1],
    ca_file=[5, "", b"/x", True, ["a"]],
)
def test_of_a_client(kind, name, value):
    assert complaint(kind, NOWHERE, **{name: value}).startswith(f"{name}: expected ")


@pytest.mark.parametrize("kind", [Spillover, AsyncSpillover, produce, consume])
@pytest.mark.parametrize(
    "urls",
    [
        *(None, 5, "", b"http://x", [], {}, ["http://x", 5], [["http://x"]], "127.0.0.1:80"),
        *("https://x?a", "http://u@x"),
    ],
)
def test_of_where_to_call(kind, urls):
    name = "nodes" if kind in (Spillover, AsyncSpillover) else "urls"
    assert complaint(kind, urls).startswith(f"{name}: expected ")


@each(
    type=[5, None, "", "a\nb"],
    key=[5, "", b"x", " x", "a\nb"],
    deadline_s=["5", None, -1, 0, NAN, True, 1e99],
    priority=["1", 10, True, False, None, 1.5],
    at_most_once=["no", None, 1],
)
def test_of_a_request(name, value):
    with Spillover(NOWHERE) as client:
        assert complaint(client.run, 1, **{name: value}).startswith(f"{name}: expected ")


@pytest.mark.parametrize("payload", [object(), NAN, {"x": [1.0, -float("inf")]}, Point(NAN)])
def test_of_what_is_no_json(payload):
    with Spillover(NOWHERE) as client:
        assert complaint(client.run, payload).startswith("payload: ")


def test_what_runs_at_most_once_has_no_key():
    with Spillover(NOWHERE) as client:
        complaint(client.run, 1, key="k", at_most_once=True)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("redis_url", {"redis_url": "redis://x", "federation": "f", "follow": False}),
        ("redis_url", {"redis_url": 5}),
        ("redis_url", {"redis_url": "http://x"}),
        ("redis_url", {"redis_url": "redis://x/name"}),
        ("redis_url", {"redis_url": "redis://x?retry=1"}),
        ("federation", {"federation": ""}),
        ("federation", {"federation": None}),
    ],
)
def test_of_a_redis_to_read_in(name, given):
    whole = {"redis_url": "redis://x", "federation": "f", "follow": True}
    assert name in complaint(AsyncSpillover, NOWHERE, **(whole | given))


async def all_of(answers):
    return [answer async for answer in answers]


@pytest.mark.parametrize("awaits", [False, True])
@each(
    at_most=["5", 0, None],
    ordered=["no", 1],
    return_errors=["no", 1],
    progress=[5],
    key=["fixed"],
    payloads=[None, 5],
)
def test_of_many_requests(awaits, name, value):
    given = {"payloads": [1], name: value}
    if awaits:
        client = AsyncSpillover(NOWHERE)
        said = complaint(lambda: asyncio.run(all_of(client.map(**given))))
    else:
        with Spillover(NOWHERE) as client:
            said = complaint(lambda: list(client.map(**given)))
    assert said.startswith(f"{name}: expected ")


@each(
    max_hops=["3", None, 1.5, True, 0],
    at_once=["1", None, 1.5, 0],
    access=[5, None, ["a"], {}, {"p1": "x"}, {5: 1.0}],
    avoid_visited=["no", None],
    name=[5, "", "a\nb"],
    take_s=["x", None, True, 0],
    token=[5],
    ca_file=[5, ""],
)
def test_of_who_takes_objects(name, value):
    assert complaint(consume, NOWHERE, **{name: value}).startswith(f"{name}: ")


@each(
    url=[5, None, "nonsense"],
    group=[5, None, "", "a b{}"],
    node=[5, None, ""],
    partitions=["4", None, 0, True, 2.0],
    handler=[5, "x", None],
    times=[5],
    rule=["x", 5],
    balance=["x", None],
    max_progress_ms=["x", -1, True],
    on_event=[5],
    renewer=["x", None],
)
def test_of_a_member_of_a_lease_group(name, value):
    given = {"url": REDIS, "group": "g", "node": "n", "partitions": 4, "handler": _serve}
    assert f"{name}: expected " in complaint(LeaseGroup, **{**given, name: value})


def test_of_a_file_of_cas(tmp_path):
    """It is told what stands there instead."""
    said = {
        "empty": (b"", "expected PEM, got an empty file"),
        "words": (b"no CA", "expected certificates in PEM, got something else"),
        "key": (b"-----BEGIN PRIVATE KEY-----\n", "expected certificates in PEM, got a private"),
        "marked": (codecs.BOM_UTF8 + b"-----BEGIN CERTIFICATE-----\n", "byte order mark (BOM)"),
        "wide": ("-----BEGIN CERTIFICATE-----".encode("utf-16"), "byte order mark (BOM)"),
    }
    for name, (content, words) in said.items():
        file = tmp_path / name
        file.write_bytes(content)
        line = complaint(Spillover, "https://x", ca_file=file)
        assert line.startswith(f"{file}: ")
        assert words in line
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "got something else" in complaint(Spillover, "https://x", ca_file=pipe)
    assert "got a directory" in complaint(Spillover, "https://x", ca_file=tmp_path)
    assert "No such file" in complaint(Spillover, "https://x", ca_file=tmp_path / "none")
    assert "embedded null" in complaint(Spillover, "https://x", ca_file="a\0b")


def _serve(partition, epoch, stop_event):
    stop_event.wait()
