"""What is taken for an answer of a node or a producer, and what for somebody else's: commands look
at each field that they go by before they show any.
"""

import pytest

from spillover.cli import node_answers
from spillover.cli.node_calls import ProblemAnswered
from spillover.cli.producers import says_no_such_path

STATE = {
    "cluster": "a", "servers": 2, "busy": 0, "queue_length": 0, "ledger": {},
    "neighbors": [{"id": "b"}],
}  # fmt: skip
COUNTS = ("buffered", "buffers", "granted", "dead", "waiting", "takes", "parked", "produced")
PRODUCER = {"producer": "p1", "peers": {}, "acknowledged": 0} | dict.fromkeys(COUNTS, 0)
DECISION = {"outcome": "kept", "neighbors": []}
POOL = {name: [{"id": "x"}] for name in ("servers", "classes", "types")}

ANSWERS = [
    (node_answers.is_node, STATE, [
        *({name: "1"} for name in ("servers", "busy", "queue_length")),
        {"cluster": 1}, {"ledger": []}, {"neighbors": {}}, {"neighbors": ["b"]},
        {"neighbors": [{"id": "b"}, {"url": "http://h"}]},
    ]),
    (node_answers.is_producer, PRODUCER, [
        *({name: None} for name in (*COUNTS, "acknowledged")), {"producer": 1}, {"peers": []},
    ]),
    (node_answers.is_federation, {"clusters": {"a": STATE, "b": {"unreachable": True}}}, [
        {"clusters": []}, {"clusters": {"a": "up"}}, {"clusters": {"a": STATE, "b": {}}},
    ]),
    (node_answers.is_explanation, {"decisions": [DECISION], "story": [{"event": "ended"}]}, [
        {"decisions": {}}, {"story": {}}, {"story": ["ended"]}, {"decisions": ["kept"]},
        {"decisions": [DECISION | {"outcome": 1}]}, {"decisions": [DECISION | {"neighbors": {}}]},
        {"decisions": [DECISION, {"outcome": "kept"}]},
    ]),
    (node_answers.is_story, {"state": "done", "story": [{"words": "it came"}]}, [
        {"state": 1}, {"story": {}}, {"story": ["it came"]}, {"story": [{"words": 1}]},
        {"story": [{"words": "it came"}, {}]},
    ]),
    (node_answers.is_pool, POOL, [
        {"servers": {}}, {"classes": ["c"]}, {"types": [{"id": 1}]}, {"types": [{"id": "t"}, {}]},
    ]),
    (node_answers.is_configuration, {"version": 4, "topology": "name: x"}, [
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
        # Older nodes have no story.
        needed = (is_answer, name) != (node_answers.is_explanation, "story")
        assert is_answer(rest) is not needed, name


def test_a_refusal_of_the_path_is_no_nodes():
    for reason in ("not_found", "method_not_allowed"):
        assert says_no_such_path(ProblemAnswered(reason, ""))
    assert not says_no_such_path(ProblemAnswered("unauthorized", ""))
