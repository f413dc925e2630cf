"""What is taken for an answer of a node or a producer, and what for somebody else's: commands look
at each field that they go by before they show any.
"""

from __future__ import annotations

import pytest

from spillover.cli import config, explain, producers, status, tokens
from spillover.cli.node_calls import is_state

STATE = {
    "cluster": "a", "servers": 2, "busy": 0, "queue_length": 0, "ledger": {},
    "neighbors": [{"id": "b"}],
}  # fmt: skip
COUNTS = ("buffered", "buffers", "granted", "dead", "waiting", "takes", "parked", "produced")
PRODUCER = {"producer": "p1", "peers": {}, "acknowledged": 0} | dict.fromkeys(COUNTS, 0)
DECISION = {"outcome": "kept", "neighbors": []}
POOL = {name: [{"id": "x"}] for name in ("servers", "classes", "types")}

ANSWERS = [
    (is_state, STATE, [
        *({name: "1"} for name in ("servers", "busy", "queue_length")),
        {"cluster": 1}, {"ledger": []}, {"neighbors": {}}, {"neighbors": ["b"]},
        {"neighbors": [{"id": "b"}, {"url": "http://h"}]},
    ]),
    (producers.is_producer, PRODUCER, [
        *({name: None} for name in (*COUNTS, "acknowledged")), {"producer": 1}, {"peers": []},
    ]),
    (status._is_federation, {"clusters": {"a": STATE, "b": {"unreachable": True}}}, [
        {"clusters": []}, {"clusters": {"a": "up"}}, {"clusters": {"a": STATE, "b": {}}},
    ]),
    (explain._is_explanation, {"decisions": [DECISION], "story": [{"event": "ended"}]}, [
        {"decisions": {}}, {"story": {}}, {"story": ["ended"]}, {"decisions": ["kept"]},
        {"decisions": [DECISION | {"outcome": 1}]}, {"decisions": [DECISION | {"neighbors": {}}]},
        {"decisions": [DECISION, {"outcome": "kept"}]},
    ]),
    (producers._is_explanation, {"state": "done", "story": [{"words": "it came"}]}, [
        {"state": 1}, {"story": {}}, {"story": ["it came"]}, {"story": [{"words": 1}]},
        {"story": [{"words": "it came"}, {}]},
    ]),
    (tokens._is_pool, POOL, [
        {"servers": {}}, {"classes": ["c"]}, {"types": [{"id": 1}]}, {"types": [{"id": "t"}, {}]},
    ]),
    (config._is_config, {"version": 4, "topology": "name: x"}, [
        {"version": "4"}, {"version": None}, {"topology": {}},
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("is_answer", "answer", "changes"), ANSWERS)
def test_an_answer_has_all_that_commands_go_by(is_answer, answer, changes):
    assert is_answer(answer)
    for change in changes:
        assert not is_answer(answer | change), change
    for name in answer:
        rest = {key: value for key, value in answer.items() if key != name}
        needed = (is_answer, name) != (explain._is_explanation, "story")  # older nodes tell none
        assert is_answer(rest) is not needed, name


def test_a_refusal_of_the_path_is_no_nodes():
    for reason in ("not_found", "method_not_allowed"):
        assert producers.says_no_such_path(producers.Refused(reason, ""))
    assert not producers.says_no_such_path(producers.Refused("unauthorized", ""))


# --- how it is shown -----------------------------------------------------------------------------


def test_numbers_stand_at_the_right_and_words_at_the_left():
    told = STATE | {"failed": 1, "health": "well", "policy": "adaptive", "tokens": POOL}
    told |= {"tokens": {"classes": [], "types": []} | {"servers": [{"id": "s", "state": "up"}]}}
    table = status._table({"a": told, "b": STATE | {"configuration": {"version": 1}}})
    right = {str(column.header) for column in table.columns if column.justify == "right"}
    assert right == {
        *("busy", "N", "P", "R", "tokens", "blocked", "load", "forwards", "pulls", "failed"),
    }
    assert {str(column.header) for column in table.columns} - right == {
        *("cluster", "health", "config", "policy", "neighbors", "state"),
    }
    table = producers.producers_table({"p1": PRODUCER})
    left = [str(column.header) for column in table.columns if column.justify == "left"]
    assert left == ["producer", "objects", "state"]


def test_what_is_wrong_is_red():
    """As far as it is known: what an unknown neighbor's link is like is no news."""
    neighbors = [
        {"id": "b", "alive": True},
        {"id": "c", "alive": False},
        {"id": "d", "degraded": True},
        {"id": "e", "degraded": False, "link": {"cut": False, "delay_ms": 5.0, "loss": 0.25}},
    ]
    shown = status._neighbors({"neighbors": neighbors})
    assert shown.plain == "b c? d(degraded) e(5 ms 25% lost)"
    red = [shown.plain[span.start : span.end] for span in shown.spans if span.style == "red"]
    assert red == ["c?", "d(degraded)", "e(5 ms 25% lost)"]
    assert status._condition(STATE).style == ""
    assert status._condition(STATE | {"stuck": 1}).style == "red"
    table = status._table({"a": STATE | {"health": "degraded"}, "b": {"unreachable": True}})
    cells = {str(column.header): list(column.cells) for column in table.columns}
    assert [cell.style for cell in cells["health"][:1]] == ["red"]
    assert cells["state"][1].style == "red"
    table = status._table({str(k): STATE | {"health": word} for k, word in enumerate(HEALTHS)})
    styles = [cell.style for cell in list(table.columns[6].cells)]
    assert styles == ["", "yellow", "yellow", "red", ""]


HEALTHS = ("well", "recovering", "resting", "degraded", "something newer")


def test_what_no_node_counts_has_no_column():
    """Nor is what is no number taken for one."""
    for wrong in (True, "1", None):
        table = status._table({"a": STATE | {"failed": wrong, "forwards": wrong}})
        titles = [str(column.header) for column in table.columns]
        assert "failed" not in titles
        (cell,) = table.columns[titles.index("forwards")].cells
        assert cell == status.MISSING


def test_a_neighbor_that_is_not_alive_is_told_by_color_and_mark():
    rows = [{"id": "b", "alive": True}, {"id": "c", "alive": False}, {}]
    table = explain._neighbors({"neighbors": rows})
    shown = [(cell.plain.strip(), cell.style) for cell in table.columns[0].cells]
    assert shown == [("b", ""), ("c?", "red"), (f"{explain.MISSING}?", "red")]
