"""The mock of an inference engine over HTTP: what it streams, what it says of its cache, and what
it refuses."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest

from spillover.model.prompt import Prompt
from spillover.sim.affinity.engine import EngineKind
from spillover_lab.bench.affinity import conversations
from spillover_lab.bench.mock_engine import PATH, MockEngine, prompt_of, text_of

SPEED = 1_000.0
LIMIT_S = 60.0


def with_engine(main):
    async def run():
        engine = MockEngine(EngineKind(), SPEED)
        server = await asyncio.start_server(engine.serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())

        async def ask(body, until, start=f"POST {PATH}"):
            head = f"{start} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            return (await reader.readuntil(until)).decode()

        try:
            async with asyncio.timeout(LIMIT_S):
                await main(ask)
        finally:
            writer.close()
            server.close()

    asyncio.run(run())


def chat(text, **more):
    return json.dumps({"messages": [{"role": "user", "content": text}], **more}).encode()


def test_answers_stream_and_a_repeat_is_found_in_the_cache():
    async def main(ask):
        text = text_of(Prompt(0.0, 1_500, 1, (17, 18), 1))
        for cached in (0, 1_024):
            told = await ask(chat(text, max_tokens=3), b"0\r\n\r\n")
            assert "text/event-stream" in told
            events = [
                json.loads(line[6:]) for line in told.split("\n") if line.startswith("data: {")
            ]
            words = [one["choices"][0]["delta"]["content"] for one in events]
            assert "".join(words) == "t t t "
            usage = events[-1]["usage"]
            assert (usage["prompt_tokens"], usage["completion_tokens"]) == (1_500, 3)
            assert usage["prompt_tokens_details"] == {"cached_tokens": cached}
        told = await ask(b"", b"hits_total 1024\n", start="GET /metrics")
        assert "vllm:prefix_cache_queries_total 3000\n" in told
        assert "vllm:num_requests_waiting 0\n" in told

    with_engine(main)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"messages": 1}', b'{"messages": [{}]}', b"{}"])
def test_what_is_no_conversation_is_refused(body):
    async def main(ask):
        assert (await ask(body, b"}}")).startswith("HTTP/1.1 400 ")
        assert (await ask(chat("hello"), b"[DONE]")).startswith("HTTP/1.1 200 ")

    with_engine(main)


def test_texts_have_the_blocks_and_the_length_of_their_prompts():
    """Equal beginnings have equal blocks, and the bench's conversations grow."""
    short, long = (Prompt(0.0, 512 * n + 7, 1, tuple(range(n)), 1) for n in (2, 4))
    texts = [text_of(one) for one in (short, long)]
    assert [len(one) for one in texts] == [short.tokens, long.tokens]
    first, second = (prompt_of(one, 1, 0.0).blocks for one in texts)
    assert (len(first), second[:2]) == (2, first)
    prompts = conversations(10, 1)
    assert prompts == sorted(prompts)
    for session in {one.session for one in prompts}:
        turns = [one for one in prompts if one.session == session]
        assert all(b.blocks[: len(a.blocks)] == a.blocks for a, b in pairwise(turns))
