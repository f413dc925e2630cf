"""Mock engines go wrong as they are told to, and what stands in front of them is started."""

import asyncio
import json
import math
import re
from contextlib import asynccontextmanager

import pytest

from spillover.model.errors import PeerError
from spillover.sim.affinity.engine import EngineKind
from spillover_lab.bench.engine_doors import envoy_bootstrap
from spillover_lab.bench.mock_engine import PATH, MockEngine, Trouble
from spillover_lab.bench.nodes import ask
from support.loop import until

BODY = json.dumps(
    {"messages": [{"role": "user", "content": "x" * 1_000}], "max_tokens": 2}
).encode()
FAST = 1_000.0
KIND = EngineKind()


@asynccontextmanager
async def engine(trouble, speed=FAST, kind=KIND):
    one = MockEngine(kind, speed, trouble)
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    try:
        yield one, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def complete(url):
    """The status, and the tokens that were found."""
    answer = await ask(url, "POST", PATH, body=BODY)
    found = re.search(rb'"cached_tokens": (\d+)', answer.body)
    return answer.status, found and int(found[1])


async def health(url):
    return (await ask(url, "GET", "/health")).status


async def test_an_engine_that_starts_says_so_until_it_is_ready():
    async with engine(Trouble(start_s=math.inf)) as (_, url):
        assert (await health(url), await complete(url)) == (503, (503, None))
    async with engine(Trouble()) as (_, url):
        assert (await health(url), await complete(url)) == (200, (200, 0))


async def test_an_engine_that_dies_breaks_its_connections_and_forgets_what_it_has_read():
    async with engine(Trouble()) as (one, url):
        assert [await complete(url), await complete(url)] == [(200, 0), (200, 512)]
        one.crash()
        assert await complete(url) == (200, 0)
    async with engine(Trouble(), speed=1e-3) as (one, url):
        asked = asyncio.ensure_future(complete(url))
        await until(lambda: 'running{engine="0",model_name="mock"} 1' in one.metrics())
        one.crash()
        with pytest.raises(PeerError):
            await asked


async def test_a_request_whose_client_leaves_holds_nothing_any_more():
    kind = EngineKind(read_tokens_per_s=1e9, token_s=1e3)
    async with engine(Trouble(), speed=1.0, kind=kind) as (one, url):
        asked = asyncio.ensure_future(complete(url))
        await until(lambda: 'running{engine="0",model_name="mock"} 1' in one.metrics())
        asked.cancel()
        await until(lambda: 'running{engine="0",model_name="mock"} 0' in one.metrics())
        assert 'usage_perc{engine="0",model_name="mock"} 0\n' in one.metrics()


async def test_some_requests_are_refused_and_some_hang():
    async with engine(Trouble(refused_share=1.0)) as (_, url):
        assert (await complete(url), await health(url)) == ((503, None), 200)
    async with engine(Trouble(hang_share=1.0)) as (_, url):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(complete(url), 0.05)
        await until(lambda: len(asyncio.all_tasks()) == 1)  # it is held no longer


def test_envoy_goes_by_localities_where_there_are_several():
    one, three = (json.dumps(envoy_bootstrap(1, 0, [[2, 3]] * sites)) for sites in (1, 3))
    assert "LoadAwareLocality" not in one
    assert "LoadAwareLocality" in three
