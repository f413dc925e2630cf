"""Nodes whose clients say how large their requests are, and whose engines say what they run."""

import pytest

from spillover.model.engine_load import EngineSource
from spillover.model.server_bounds import ServerBounds
from spillover.model.work_source import WorkSource
from support.federation import until
from support.passed_requests import get
from support.proxy_doors import doors

SAYS = (
    b"HTTP/1.1 200 OK\r\nendpoint-load-metrics: TEXT named_metrics.num_requests_waiting=0,"
    b" named_metrics.kv_cache_usage_perc=0.25\r\nContent-Length: 2\r\n\r\nok"
)


async def metrics_of(node):
    answer = await node.client.request("GET", "/metrics", timeout_s=5)
    return answer.body.decode()


async def state_of(node):
    _, state = await node.get("/state")
    return state


async def test_what_requests_say_of_their_size_is_learned_from():
    """A client's, and a neighbor's, to which nothing is told of that besides the request."""
    told = {"work": WorkSource(header="X-Work"), "servers": 4}
    async with doors("a", "b", cluster=told) as here:
        for number in range(40):
            await here.ask(get(b"X-Work: %d" % number))
        await here.ask(get(b"X-Work: many"))
        work = (await state_of(here["a"]))["work"]
        assert work["unread"] == 1
        assert work["types"]["default"]["requests"] == 40
        told = 'spillover_work_error{by="work",cluster="a",type="default"}'
        assert told in await metrics_of(here["a"])


@pytest.mark.parametrize("handler", ["proxy:{url}", "http:{url}"])
async def test_an_engine_says_what_it_holds_with_its_answers(handler):
    """It is asked for that."""
    told = {"servers": ServerBounds(), "servers_from": EngineSource(orca=True)}
    async with doors(cluster=told, handler=handler) as here:
        here.service.answer = SAYS
        if handler.startswith("proxy"):
            await here.ask(get())
        else:
            await here["a"].post({"payload": 1})
        head = here.service.seen[-1][0].lower()
        assert b"endpoint-load-metrics-format: text" in head
        learned = here["a"].machine.servers
        await until(lambda: learned.engine.load is not None)
        assert learned.engine.load == (None, 0.0, 0.25)
