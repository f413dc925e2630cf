"""What is made of two looks at a node's `/state`: a pool with rates, or one clear line."""

import asyncio
import copy

import pytest

from spillover.cli.pool_measured import measure, measured, read
from spillover.model.errors import RunError
from support.scripted_server import answer, scripted

URL = "http://h:1"
STATE = {
    "cluster": "a",
    "ledger": {"epoch": 7},
    "tokens": {
        "order": "longest-available",
        "servers": [
            {"id": "big", "rate": 4.0, "state": "up"},
            {"id": "small", "rate": 1.0, "state": "out"},
        ],
        "classes": [
            {"id": "on-big", "servers": ["big"], "limit": 6},
            {"id": "on-small", "servers": ["small"], "limit": 2},
        ],
        "types": [
            {"id": "chat", "classes": ["on-big", "on-small"], "arrived": 10, "work_ms": 500.0},
            {"id": "batch", "classes": ["on-big"], "arrived": 0, "work_ms": 500.0},
        ],
    },
}


def found(*, chat, batch, chat_ms=500.0, batch_ms=500.0, duration_s=10.0, order=None):
    """Of two looks, between which so many came."""
    after = copy.deepcopy(STATE)
    kinds = after["tokens"]["types"]
    kinds[0].update(arrived=10 + chat, work_ms=chat_ms)
    kinds[1].update(arrived=batch, work_ms=batch_ms)
    after["tokens"]["order"] = order or STATE["tokens"]["order"]
    looks = [read(URL, state)[0] for state in (STATE, after)]
    return measured(URL, *looks, duration_s)


def test_the_pool_is_in_jobs_per_second():
    """Of servers, too: what a job of mean work takes decides."""
    told = found(chat=100, batch=50)
    assert {server.id: server.rate for server in told.pool.servers} == {"big": 8, "small": 2}
    assert {kind.id: kind.rate for kind in told.pool.types} == {"chat": 10, "batch": 5}
    assert [each.tokens for each in told.pool.classes] == [6, 2]
    assert told.pool.load == pytest.approx(1.5)
    types = told.as_dict()["types"]
    assert types["chat"] == {
        "arrived": 100, "rate": 10, "rate_standard_error": 1, "work_ms": 500
    }  # fmt: skip
    assert told.remarks() == [
        "measured for 10 s: chat 10 +- 1 per s, batch 5 +- 0.71 per s (standard errors)",
        "counted as if they took jobs: small",
    ]


def test_a_type_that_did_not_come_is_left_out():
    told = found(chat=7, batch=0)
    assert [kind.id for kind in told.pool.types] == ["chat"]
    assert told.arrived == {"chat": 7, "batch": 0}


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ({"chat": 0, "batch": 0}, "no client's request came to http://h:1 in 10 s"),
        ({"chat": -3, "batch": 5}, "no client's request came"),
        ({"chat": 1, "batch": 0, "chat_ms": 0.0}, "says that its jobs take no time"),
        ({"chat": 1, "batch": 1, "batch_ms": 0.0}, "is no pool: pool: types[1].rate"),
        ({"chat": 1, "batch": 1, "batch_ms": float("nan")}, "says that its jobs take no time"),
        ({"chat": 1, "batch": 1, "batch_ms": float("inf")}, "is no pool: pool: servers[0].rate"),
    ],
)
def test_what_gives_no_rates_is_one_line(counts, says):
    with pytest.raises(RunError) as error:
        found(**counts)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokens": None}, "the servers of cluster a are alike: it has no tokens"),
        ({"tokens": {}}, "tells too little of its pool: Object missing required field `order`"),
        (
            {"tokens": STATE["tokens"] | {"types": [{"id": "t", "classes": [], "work_ms": 1}]}},
            "tells too little of its pool: Object missing required field `arrived`",
        ),
    ],
)
def test_a_state_without_what_is_needed_is_one_line(change, says):
    with pytest.raises(RunError) as error:
        read(URL, STATE | change)
    assert says in str(error.value)


def measured_there(**after):
    """(the pool of a node that says STATE and then `after`, what was told meanwhile)."""
    told = []
    state = STATE | {"servers": 2, "busy": 0, "queue_length": 0, "neighbors": []}

    async def look_twice():
        async with scripted(answer(200, state), answer(200, state | after)) as node:
            return await measure(node.url, 0.02, told.append)

    return asyncio.run(look_twice()), told


def test_a_node_that_began_anew_meanwhile_is_not_measured():
    with pytest.raises(RunError, match=r"has been started anew meanwhile: measure again$"):
        measured_there(ledger={"epoch": 8})
