"""Which `Host` a service gets: the client's, that of its URL, or one that operators name."""

import asyncio

import pytest

from spillover.inputs.topology_file import load_topology
from spillover.live.handlers.http.upstreams import Upstreams
from spillover.model.errors import InputError
from spillover.model.upstream_urls import passed_to
from support.federation import run
from support.lying_service import lying_service
from support.passed_requests import get, post
from support.proxy_doors import in_front

NAMED = "models.example:8443"


def lines_of(head, name):
    return [line for line in head.split(b"\r\n") if line.lower().startswith(name + b":")]


@pytest.mark.parametrize("hops", [0, 1])
@pytest.mark.parametrize("host", ["pass", "url", NAMED])
async def test_the_service_gets_the_host_that_is_said(hops, host):
    """Of known heads, other ones, and old clients that tell none; the client's is told besides."""
    each = {"b": {"servers": 4}} if hops else {}
    async with in_front(hops, cluster={"host": host}, each=each) as here:
        own = here.service.url.removeprefix("http://").encode()
        told = {"pass": b"h", "url": own}.get(host, host.encode())
        for raw in (get(), get(), post(b"Content-Length: 5"), get(b"Te: trailers")):
            assert (await here.ask(raw)).body == b"ok"
            head, _ = here.service.seen.pop()
            assert lines_of(head, b"host") == [b"Host: " + told]
            assert lines_of(head, b"x-forwarded-host") == [b"X-Forwarded-Host: h"]
        assert (await here.ask(get(host=b"", version=b"1.0"))).status == 200
        told = own if host == "pass" else told
        assert lines_of(here.service.seen.pop()[0], b"host") == [b"Host: " + told]


def test_each_of_several_urls_gets_its_own_and_a_name_is_what_is_proven():
    urls = passed_to("proxy:https://10.0.0.1,https://b.example:8443")

    def told(host):
        async def made():
            each = Upstreams(urls, 1, 0.1, lambda _: None, host=host)
            try:
                return [(one.host, one.client._securing.name) for one in each._all]
            finally:
                await each.close()

        found = []

        async def main():
            found.extend(await made())

        run(main)
        return found

    assert told("pass") == [(None, "10.0.0.1"), (None, "b.example")]
    assert told("url") == [(b"10.0.0.1", "10.0.0.1"), (b"b.example:8443", "b.example")]
    assert told(NAMED) == [(NAMED.encode(), "models.example")] * 2


@pytest.mark.parametrize(("method", "host"), [("GET", "url"), ("HEAD", NAMED)])
async def test_a_service_is_asked_whether_it_is_well_by_the_host_that_is_said(method, host):
    async with lying_service() as service:
        service.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
        service.answer += b"ok" if method == "GET" else b""
        upstreams = Upstreams(passed_to(f"proxy:{service.url}"), 1, 0.1, lambda _: None, host=host)
        told = asyncio.Future()
        upstreams.ask(method, "/health", told.set_result)
        assert await told
        head, _ = service.seen.pop()
        own = service.url.removeprefix("http://") if host == "url" else host
        assert lines_of(head, b"host") == [b"Host: " + own.encode()]
        await upstreams.close()


@pytest.mark.parametrize("host", ["", "a b", "http://x", "x:0", "x:99999", "x/y", "[::g]"])
def test_what_is_no_host_is_refused(host, tmp_path):
    file = tmp_path / "t.yaml"
    handler = '"proxy:http://127.0.0.1:1"'
    file.write_text(f'clusters: [{{id: a, servers: 1, handler: {handler}, host: "{host}"}}]')
    with pytest.raises(InputError, match=r"host: expected pass, url or HOST"):
        load_topology(str(file))
