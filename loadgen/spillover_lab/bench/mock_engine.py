"""Inference engines that compute nothing: OpenAI's streaming API over HTTP, with the times of the
simulator's engines (`spillover.sim.affinity.engine`), a given number of times as fast.

A token is a character of what is asked, and a block is known by all that stands before its end. A
request's first token comes when the model says; the others come together when they are all written,
at the pace of when they began. `/metrics` has the names that vLLM uses, and each answer tells in
ORCA's header how busy the engine is. What is to go wrong is a `Trouble`.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any
from zlib import crc32

from spillover.live.process.listening import bind_socket
from spillover.model.prompt import BLOCK_TOKENS, Prompt
from spillover.sim.affinity.engine import Engine, EngineKind, PromptPrefill
from spillover_lab.bench.servers import HOST

HEAD_LIMIT_BYTES = 65_536
ANSWER_TOKENS = 16
"""The number of tokens of an answer that says no `max_tokens`."""
PATH = "/v1/chat/completions"

MODEL = "mock"

_STREAM = (
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    "endpoint-load-metrics: TEXT application_utilization={:.4f}\r\n\r\n"
)
_DONE = "[DONE]"
_LOADING = json.dumps({"error": {"message": "the model is being loaded"}})


@dataclass(frozen=True, slots=True)
class Trouble:
    """What goes wrong with an engine. Times are the model's, from its start."""

    start_s: float = 0.0
    """The time that it takes to start: it answers by 503 meanwhile, `/health` too."""
    crash_s: float = math.inf
    """When it dies: its connections break, its cache is lost, and it starts again."""
    hang_share: float = 0.0
    """The share of the requests that never get a byte."""
    refused_share: float = 0.0
    """The share of the requests that are answered by 503 at once."""
    slow: float = 1.0
    """It takes so many times as long for everything."""


NO_TROUBLE = Trouble()


async def serve_engines(
    count: int, kind: EngineKind, speed: float, troubles: Sequence[Trouble], connection: Connection
) -> None:
    """Runs engines, each at a port of its own, until it is ended: tells the ports, and, each time
    that it is asked, the tokens that were asked for and found. The first engines have troubles."""
    all_troubles = [*troubles, *[NO_TROUBLE] * (count - len(troubles))]
    engines = [MockEngine(kind, speed, trouble) for trouble in all_troubles]
    sockets = [bind_socket(HOST, 0) for _ in engines]
    for engine, listening, trouble in zip(engines, sockets, all_troubles, strict=True):
        await asyncio.start_server(engine.serve, sock=listening)
        if trouble.crash_s < math.inf:
            asyncio.get_running_loop().call_later(trouble.crash_s / speed, engine.crash)
    connection.send([listening.getsockname()[1] for listening in sockets])
    while True:
        await asyncio.to_thread(connection.recv)
        told = sum((engine.tokens for engine in engines), Counter[str]())
        connection.send((told["asked"], told["found"]))


class MockEngine:
    """One engine behind HTTP."""

    def __init__(
        self, kind: EngineKind, speed: float, trouble: Trouble = NO_TROUBLE, seed: int = 1
    ) -> None:
        self.tokens: Counter[str] = Counter()
        self._kind = replace(
            kind,
            read_tokens_per_s=kind.read_tokens_per_s / trouble.slow,
            token_s=kind.token_s * trouble.slow,
            token_each_s=kind.token_each_s * trouble.slow,
        )
        self._engine = Engine(self._kind)
        self._speed = speed
        self._trouble = trouble
        self._draws = random.Random(seed)
        self._began_s = time.monotonic()
        self._starts_until_s = trouble.start_s
        self._held_tokens = 0
        """The tokens of the prompts that wait or run: what is only cached makes room."""
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection. One whose client leaves is given up."""
        self._writers.add(writer)
        try:
            asked = await _read(reader)
            while True:
                async with asyncio.TaskGroup() as both:
                    coming = both.create_task(_read(reader))
                    both.create_task(self._answer(*asked, writer))
                asked = coming.result()
        except* (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # whoever asked has gone
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if self._now_s() < self._starts_until_s:
            writer.write(_whole(503, _LOADING))
        elif head.startswith(b"GET /metrics "):
            writer.write(_whole(200, self.metrics(), "text/plain"))
        elif head.startswith(b"GET "):  # /health, /v1/models
            writer.write(_whole(200, json.dumps({"data": [{"id": MODEL}]})))
        elif head.startswith(f"POST {PATH} ".encode()):
            await self._complete(body, writer)
        else:
            writer.write(_whole(404, json.dumps({"error": {"message": "unknown"}})))
        await writer.drain()

    def metrics(self) -> str:
        """Returns what an engine tells of itself."""
        state = self._engine.state(self._now_s())
        running = min(state.requests, self._kind.slots)
        values = {
            "num_requests_running": running,
            "num_requests_waiting": state.requests - running,
            "kv_cache_usage_perc": min(1.0, self._held_tokens / self._kind.cache_tokens),
            "prefix_cache_queries_total": self.tokens["asked"],
            "prefix_cache_hits_total": self.tokens["found"],
        }
        return "".join(
            f"# TYPE vllm:{name} {'counter' if name.endswith('total') else 'gauge'}\n"
            f'vllm:{name}{{engine="0",model_name="{MODEL}"}} {value:.6g}\n'
            for name, value in values.items()
        )

    def crash(self) -> None:
        """Breaks all connections, forgets everything, and starts again."""
        self._starts_until_s = self._now_s() + self._trouble.start_s
        self._engine, self._held_tokens = Engine(self._kind), 0
        for writer in self._writers:
            writer.transport.abort()

    async def _complete(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        try:
            asked = json.loads(body)
            text = "".join(str(one["content"]) for one in asked["messages"])
            answer_tokens = int(asked.get("max_tokens", ANSWER_TOKENS))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            writer.write(_whole(400, json.dumps({"error": {"message": str(error)}})))
            return
        if self._draws.random() < self._trouble.refused_share:
            writer.write(_whole(503, json.dumps({"error": {"message": "overloaded"}})))
            return
        if self._draws.random() < self._trouble.hang_share:
            await asyncio.get_running_loop().create_future()  # until the client leaves
        now_s = self._now_s()
        prompt = prompt_of(text, max(1, answer_tokens), now_s)
        engine = self._engine
        reading = engine.take(prompt, now_s, prompt.tokens)
        self._held_tokens += prompt.tokens
        self.tokens.update(asked=prompt.tokens, found=reading.found_tokens)
        try:
            await self._write(prompt, reading, writer)
        except asyncio.CancelledError:
            engine.leave(reading, self._now_s())
            raise
        finally:
            if engine is self._engine:  # else it has died meanwhile
                self._held_tokens -= prompt.tokens

    async def _write(
        self, prompt: Prompt, reading: PromptPrefill, writer: asyncio.StreamWriter
    ) -> None:
        # As vLLM does: the head says nothing of when the first token comes.
        writer.write(_STREAM.format(self._engine.state(self._now_s()).busy).encode())
        await self._until(reading.first_token_s)
        writer.write(_event({"choices": [{"delta": {"content": "t "}}]}))
        running = self._engine.state(self._now_s()).requests
        pace_s = self._kind.token_s + self._kind.token_each_s * running
        await self._until(reading.first_token_s + (prompt.answer_tokens - 1) * pace_s)
        usage = {
            "prompt_tokens": prompt.tokens,
            "completion_tokens": prompt.answer_tokens,
            "prompt_tokens_details": {"cached_tokens": reading.found_tokens},
        }
        rest = "t " * (prompt.answer_tokens - 1)
        writer.write(_event({"choices": [{"delta": {"content": rest}}], "usage": usage}))
        writer.write(_event(_DONE) + b"0\r\n\r\n")

    def _now_s(self) -> float:
        return (time.monotonic() - self._began_s) * self._speed

    async def _until(self, at_s: float) -> None:
        await asyncio.sleep((at_s - self._now_s()) / self._speed)


async def _read(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Returns the head and the body of the next request."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = [one for one in head.lower().split(b"\r\n") if one[:15] == b"content-length:"]
    return head, await reader.readexactly(int(length[0][15:]) if length else 0)


def prompt_of(text: str, answer_tokens: int, now_s: float) -> Prompt:
    """Returns a prompt of so many characters."""
    known, blocks = 0, []
    for end in range(BLOCK_TOKENS, len(text) + 1, BLOCK_TOKENS):
        known = crc32(text[end - BLOCK_TOKENS : end].encode(), known)
        blocks.append(known)
    return Prompt(now_s, max(1, len(text)), answer_tokens, tuple(blocks), 0)


def text_of(prompt: Prompt) -> str:
    """Returns a text of as many characters as a prompt has tokens, with its blocks."""
    begin = "".join(f"{block} ".ljust(BLOCK_TOKENS, ".") for block in prompt.blocks)
    return begin.ljust(prompt.tokens, ".")


def _event(told: Any) -> bytes:
    line = told if isinstance(told, str) else json.dumps(told)
    event = f"data: {line}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


def _whole(status: int, body: str, type_: str = "application/json") -> bytes:
    fields = f"Content-Type: {type_}\r\nContent-Length: {len(body.encode())}"
    return f"HTTP/1.1 {status} X\r\n{fields}\r\n\r\n{body}".encode()
