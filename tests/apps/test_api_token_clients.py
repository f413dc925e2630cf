"""The client library and the load generator at nodes with API tokens."""

from contextlib import asynccontextmanager

import pytest

from spillover.client import AsyncSpillover, Rejected, Retries
from spillover.model.errors import InputError
from spillover.workloads.generated import poisson
from spillover_loadgen import driver
from spillover_loadgen.record import Outcome
from spillover_loadgen.targets import check_targets
from support.api_tokens import SECRETS, access_of_tests, shown_by

ONCE = Retries(rounds=1)
SHORT = {"service_ms": 1}


@pytest.fixture(autouse=True)
def _no_token_of_ones_own(monkeypatch):
    monkeypatch.delenv("SPILLOVER_TOKEN", raising=False)


@asynccontextmanager
async def a_node(nodes):
    async with nodes.Federation(nodes.topology_of("a"), access=access_of_tests()) as run:
        yield run["a"]


async def test_clients_show_what_they_are_given_or_what_the_environment_says(nodes, monkeypatch):
    async with a_node(nodes) as node:
        for token, reason in ((None, "unauthenticated"), (SECRETS["reader"], "forbidden")):
            async with AsyncSpillover(node.url, token=token, retries=ONCE) as client:
                with pytest.raises(Rejected, match="API token") as error:
                    await client.run(SHORT)
                assert (error.value.reason, error.value.surely_did_not_run) == (reason, True)
        async with AsyncSpillover(node.url, token=SECRETS["submitter"], follow=True) as client:
            assert (await client.run(SHORT)).cluster == "a"
            job = await client.submit(SHORT, key="order-7")
            assert (await job.result()).id == "order-7"
            await nodes.until(lambda: node.server.config.app._sessions.clients)
        monkeypatch.setenv("SPILLOVER_TOKEN", SECRETS["other"])
        async with AsyncSpillover(node.url) as client:
            assert (await client.run(SHORT)).cluster == "a"
            assert await client.job("order-7", node=node.url).state() == "unknown"


async def test_load_is_made_with_an_api_token(nodes):
    async with a_node(nodes) as node:
        targets = {"a": node.url}
        schedule = poisson(["a"], rate_per_s=50.0, duration_s=0.2, seed=1)
        for who, outcome in ((None, Outcome.FAILED), ("submitter", Outcome.OK)):
            records = await driver.run(schedule, targets, seed=1, headers=shown_by(who))
            assert {record.outcome for record in records} == {outcome}
        with pytest.raises(InputError, match=r"\(--token-file\)"):
            await check_targets(targets)
        await check_targets(targets, headers=shown_by("submitter"))  # who may not look there
        await check_targets(targets, headers=shown_by("reader"))
        with pytest.raises(InputError, match="found cluster a there"):
            await check_targets({"b": node.url}, headers=shown_by("reader"))
