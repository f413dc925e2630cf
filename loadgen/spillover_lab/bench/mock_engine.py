"""Inference engines that compute nothing: OpenAI's streaming API over HTTP, with the times of the
simulator's engines (`spillover.sim.affinity.engine`), a given number of times as fast.

A token is a character of what is asked, and a block is known by all that stands before its end. A
request's first token comes when the model says; the others come together when they are all written,
at the pace of when they began. `/metrics` has the names that vLLM uses.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from multiprocessing.connection import Connection
from typing import Any
from zlib import crc32

from spillover.live.process.listening import bind_socket
from spillover.model.prompt import BLOCK_TOKENS, Prompt
from spillover.sim.affinity.engine import Engine, EngineKind
from spillover_lab.bench.servers import HOST

HEAD_LIMIT_BYTES = 65_536
ANSWER_TOKENS = 16
"""The number of tokens of an answer that says no `max_tokens`."""
PATH = "/v1/chat/completions"

_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_DONE = "[DONE]"


async def serve_engines(count: int, kind: EngineKind, speed: float, connection: Connection) -> None:
    """Runs engines, each at a port of its own, until it is ended: tells the ports, and, each time
    that it is asked, the tokens that were asked for and found."""
    engines = [MockEngine(kind, speed) for _ in range(count)]
    sockets = [bind_socket(HOST, 0) for _ in engines]
    for engine, listening in zip(engines, sockets, strict=True):
        await asyncio.start_server(engine.serve, sock=listening)
    connection.send([listening.getsockname()[1] for listening in sockets])
    while True:
        await asyncio.to_thread(connection.recv)
        told = sum((engine.tokens for engine in engines), Counter[str]())
        connection.send((told["asked"], told["found"]))


class MockEngine:
    """One engine behind HTTP."""

    def __init__(self, kind: EngineKind, speed: float) -> None:
        self.tokens: Counter[str] = Counter()
        self._engine = Engine(kind)
        self._kind = kind
        self._speed = speed
        self._began_s = time.monotonic()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [
                    one for one in head.lower().split(b"\r\n") if one[:15] == b"content-length:"
                ]
                body = await reader.readexactly(int(length[0][15:]) if length else 0)
                if head.startswith(b"GET /metrics "):
                    writer.write(_whole(200, self.metrics(), "text/plain"))
                else:
                    await self._complete(body, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # whoever asked has gone
        finally:
            writer.close()

    def metrics(self) -> str:
        """Returns what an engine tells of itself."""
        state = self._engine.state(self._now_s())
        running = min(state.requests, self._kind.slots)
        values = {
            "vllm:num_requests_running": running,
            "vllm:num_requests_waiting": state.requests - running,
            "vllm:prefix_cache_queries_total": self.tokens["asked"],
            "vllm:prefix_cache_hits_total": self.tokens["found"],
        }
        return "".join(f"{name} {value}\n" for name, value in values.items())

    async def _complete(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        try:
            asked = json.loads(body)
            text = "".join(str(one["content"]) for one in asked["messages"])
            answer_tokens = int(asked.get("max_tokens", ANSWER_TOKENS))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            writer.write(_whole(400, json.dumps({"error": {"message": str(error)}})))
            return
        now_s = self._now_s()
        prompt = prompt_of(text, max(1, answer_tokens), now_s)
        reading = self._engine.take(prompt, now_s, prompt.tokens)
        self.tokens.update(asked=prompt.tokens, found=reading.found_tokens)
        writer.write(_STREAM)  # as vLLM does: the head says nothing
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
