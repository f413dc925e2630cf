"""What becomes of producers that are started together; they are scripted, and there at once."""

import asyncio
import signal
import time

import pytest

from spillover.inputs.api_tokens import load_api_tokens
from spillover.model.access import Role
from spillover.model.errors import RunError
from spillover.testbed import producers
from spillover.testbed.producers import ProducerBed
from support.loop import until
from support.ports import free_row
from support.scripted_nodes import scripted_nodes

pytestmark = pytest.mark.processes


@pytest.fixture
def scripted(tmp_path, monkeypatch):
    monkeypatch.setattr(producers, "READY_POLL_S", 0.01)
    return scripted_nodes(tmp_path, monkeypatch)


def bed(count=2, **options):
    return ProducerBed(count, first_port=free_row(count), **{"drain_timeout_s": 5.0} | options)


async def test_producers_know_each_other_and_have_what_was_asked_for(scripted, tmp_path):
    first = free_row(2)
    async with ProducerBed(
        2, buffers=7, stores=tmp_path / "stores", drain_timeout_s=4.5, first_port=first
    ) as one:
        assert one.urls == {f"p{k}": f"http://127.0.0.1:{first + k - 1}" for k in (1, 2)}
        ((words, environment),) = scripted.told("p2")
        assert words[:6] == ["-m", "spillover", "queue", "--id", "p2", "--end-with-stdin"]
        said = dict(zip(words[6::2], words[7::2], strict=True))
        assert int(said.pop("--held-limit-bytes")) > 0
        assert said == {
            "--bind": f"127.0.0.1:{first + 1}", "--drain-timeout-s": "4.5", "--buffers": "7",
            "--peer": f"p2={one.urls['p2']}", "--store": str(tmp_path / "stores" / "p2"),
        }  # fmt: skip
        assert f"p1={one.urls['p1']}" in words
        assert "SPILLOVER_TOKEN" not in environment
        assert len(set(one.pids.values())) == 2
        directory = one.logs["p2"].parent
        processes = dict(one._processes)
    assert not directory.exists()
    assert [process.returncode for process in processes.values()] == [0, 0]


async def test_producers_with_tokens_show_one_of_their_own(scripted, tmp_path):
    async with bed(tokens=["mine.yaml"]) as one:
        ((words, environment),) = scripted.told("p1")
        files = [words[at + 1] for at, word in enumerate(words) if word == "--tokens"]
        assert files[0] == "mine.yaml"
        (token,) = load_api_tokens(files[1:])
        assert (token.tenant, set(token.roles)) == ("up", {Role.READ, Role.SUBMIT})
        assert environment["SPILLOVER_TOKEN"] == one._own.secret
        assert "--buffers" not in words
        assert "--store" not in words


async def test_a_producer_that_does_not_start_is_told(scripted):
    scripted.say("p2", "broken", "1 no luck today")
    one = bed()
    with pytest.raises(RunError, match=r"^producer p2 did not start: no luck today$"):
        async with one:
            pass
    assert not one.logs["p1"].parent.exists()
    assert one._processes["p1"].returncode is not None


async def test_who_is_not_ready_in_time_is_named(scripted, monkeypatch):
    monkeypatch.setattr(producers, "READY_WITHIN_S", 0.3)
    scripted.say("p2", "state", {"producer": "another"})
    began_s = time.monotonic()
    with pytest.raises(RunError, match=r"^not ready within 0 s: producer p2$"):
        async with bed():
            pass
    assert time.monotonic() - began_s >= 0.3


async def test_producers_are_waited_for(scripted):
    scripted.say("p1", "state", {"producer": "another"})
    one = bed()
    starting = asyncio.create_task(one.__aenter__())
    await until(lambda: len(one.logs) == 2)
    await until((scripted.of / "p2.told").exists)
    one.reread()
    done, _ = await asyncio.wait({starting}, timeout=0.2)
    assert not done
    scripted.unsay("p1", "state")
    await starting
    assert "hangup" not in one.logs["p2"].read_text(), "it was being started"
    one.reread()
    await until(lambda: one.last_words("p2") == "heard a hangup")
    await one.stop(5.0)


async def test_the_first_that_ends_is_named_and_the_others_end(scripted):
    """Who does not is killed, after the time that is given."""
    scripted.say("p1", "deaf")
    async with bed(3, drain_timeout_s=0.3 - producers.SPARE_S) as one:
        one._processes["p2"].kill()
        assert await one.first_dead() == "p2"
        began_s = time.monotonic()
        one.reread()
        processes = dict(one._processes)
    assert time.monotonic() - began_s >= 0.3
    assert [processes[name].returncode for name in ("p1", "p2", "p3")] == [
        -signal.SIGKILL, -signal.SIGKILL, 0,
    ]  # fmt: skip
