"""Python handlers that say no: the work was not done, the request is at fault, or it just failed.
The same classes as those of upstreams (`test_failing_upstreams`) and of Dask (`test_dask_call`).
"""

import json
import time

import pytest

from spillover.core.overflow.events import NotStarted
from spillover.live.handlers.calls import RETRY_AFTER_S_MAX, SAID_LIMIT_BYTES
from spillover.model.request import Outcome
from support.handler_rig import Rig

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("importable")]

MODULE = "failing_handlers_of_tests"

NOT_RUN = {
    "not run": None,
    "not run, pause": 5.0,
    "not run, absurd pause": RETRY_AFTER_S_MAX,
    "not run, negative pause": None,
    "not run, no number": None,
    "not run, nan": None,
    "not run, true": None,
    "not run, an exit": None,
    "both": None,
}
REJECTED = {
    "rejected": (422, None),
    "rejected, status": (404, {"a": [1]}),
    "rejected, enum": (410, None),
    "rejected, odd status": (422, None),
    "rejected, huge status": (422, None),
    "rejected, text status": (422, None),
    "rejected, odd body": (409, None),
    "rejected, endless body": (409, None),
}
FAILED = ("not quite", "denied", "hostile")

KINDS = [("say_no", "thread"), ("say_no", "process"), ("say_no_later", "thread")]


def check_all(ends):
    for name, pause_s in NOT_RUN.items():
        event = ends[name]
        assert isinstance(event, NotStarted), name
        assert event.refused
        assert event.retry_after_s == pause_s, name
    for name, (status, body) in REJECTED.items():
        event = ends[name]
        assert (event.outcome, event.upstream_status) == (Outcome.REJECTED, status), name
        said = event.upstream_body
        assert (None if said is None else json.loads(bytes(memoryview(said)))) == body, name
    long = ends["rejected, long body"]
    assert len(bytes(memoryview(long.upstream_body))) <= SAID_LIMIT_BYTES
    for name in FAILED:
        event = ends[name]
        assert event.outcome is Outcome.FAILED, name
        assert event.upstream_status is None
    for event in ends.values():
        assert event.problem
        assert "\n" not in event.problem


ALL = [*NOT_RUN, *REJECTED, "rejected, long body", *FAILED]


@pytest.mark.parametrize(("function", "workers"), KINDS)
async def test_what_an_exception_says_of_itself(function, workers):
    handler = f"python:{MODULE}:{function}"
    async with Rig(handler, servers=1, workers=workers) as rig:
        check_all({payload: await rig.run(payload) for payload in ALL})


# --- on running nodes -------------------------------------------------------------------------


async def test_the_ready_made_classes(nodes):
    fields = {"handler": f"python:{MODULE}:say_no_by_class"}
    topology = nodes.topology_of("a", "b", clusters={"a": fields})
    async with nodes.Federation(topology) as federation:
        node = federation["a"]
        answer = await node.post({"status": 409, "body": {"field": "audio"}})
        problem = json.loads(answer.body)
        assert (answer.status, problem["reason"]) == (409, "handler_rejected")
        assert problem["upstream_body"] == {"field": "audio"}
        assert "expected audio" in problem["detail"]
        assert node.machine.health.failed_share(time.monotonic()) == 0.0
        # b sleeps, whatever else the payload says
        answer = await node.post({"pause_s": 3600, "service_ms": 1})
        assert (answer.status, json.loads(answer.body)["path"]) == (200, ["a", "b"])
        _, state = await node.get("/state")
        assert state["health"] == "resting"
        assert 50.0 < node.machine.servers.rest_s(time.monotonic()) <= 60.0
