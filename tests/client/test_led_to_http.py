"""Who was given https shows nothing over http, whatever an answer says: API tokens would go in the
clear to wherever it leads. For commands that is tested in tests/cli/test_told.py.
"""

from __future__ import annotations

import asyncio
import ssl

import pytest

pytest.importorskip("cryptography")

from spillover.client import consume
from spillover.live.tls.contexts import server_context
from spillover.live.tls.material import read_material
from spillover.model.addresses import may_be_led_to
from support.certificates import Authority, put
from support.loop import until
from support.scripted_server import answer, scripted

SECRET = "spillover_of-nobody-else"  # noqa: S105 - it is none


async def take_one(url):
    async with consume(url, token=SECRET) as objects:
        await anext(aiter(objects))


def test_a_secret_is_not_led_from_https_to_http(tmp_path, monkeypatch):
    authority = Authority()
    files = put(tmp_path, "a", authority.sign("localhost", addresses=("127.0.0.1",)), authority)
    monkeypatch.setenv("SPILLOVER_CA_FILE", files.ca)
    context = server_context(read_material(files, None), callers=ssl.CERT_NONE)

    async def main():
        async with scripted(answer(200, {})) as thief, scripted(tls=context) as producer:
            there = {"p2": thief.url}
            told = {"producer": "p1", "producers": there, "peers": there}
            producer.answers(answer(200, told))
            taking = asyncio.create_task(take_one(producer.url))
            await until(lambda: any(words.startswith("POST /take") for words, _ in producer.seen))
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            assert all(SECRET in headers["authorization"] for _, headers in producer.seen)
            assert not thief.seen

    asyncio.run(main())


def test_where_one_may_be_led():
    given = ["https://a", "http://b"]
    assert may_be_led_to("https://c", given)
    assert may_be_led_to("http://b", given)
    assert not may_be_led_to("http://c", given)
    assert may_be_led_to("http://c", ["http://a"])
