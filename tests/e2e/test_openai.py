"""Streams of tokens through the doors of three nodes, in front of a mock of OpenAI's API: they come
one by one, the same through no hop and two hops, and who leaves is seen to leave.

What is asked at door c runs there. b has no server that is free and a none at all, so that what is
asked there runs at c as well. The example of services/docs/streaming.md is run as it is printed,
with OpenAI's own client library, which takes seconds to import.
"""

import json
import re
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support import commands
from support.ports import free_ports, free_row
from support.waiting import until

ROOT = Path(__file__).parents[2]
PAGE = ROOT.joinpath("services/docs/streaming.md").read_text(encoding="utf-8")
MOCK = (sys.executable, "-m", "uvicorn", "--app-dir", str(ROOT / "tests"), "--log-level", "warning")
HOPS = pytest.mark.parametrize("hops", [0, 2])
OCCUPIED = 3
WORDS = " ".join(f"word-{number}" for number in range(50))
"""One each 10 ms."""
AT_LENGTH = "speak at length"
"""For longer than any test lasts: who leaves in the middle leaves before the end, however late."""

RULES = f"""\
rules:
  - name: many words
    when: {{messages_contain: "{AT_LENGTH}"}}
    respond: {{content: "{WORDS * 60}"}}
  - name: words
    match: {{}}
    respond: {{content: "{WORDS}"}}
"""

SITES = """\
policy: two-choice
clusters:
  - {{id: a, servers: 1, handler: "proxy:http://127.0.0.1:{gone}", proxy_url: "{doors[2]}"}}
  - {{id: b, servers: 1, handler: "proxy:http://127.0.0.1:{silent}", proxy_url: "{doors[1]}"}}
  - {{id: c, servers: 8, handler: "proxy:{mock}", proxy_url: "{doors[0]}"}}
links: [{{between: [a, b]}}, {{between: [b, c]}}]
"""


def start_mock(start, directory):
    """Its url."""
    (port,) = free_ports(1)
    directory.joinpath("fakellm.yaml").write_text(RULES)
    start(*MOCK, "support.counted_openai:app", "--port", str(port), cwd=directory)
    url = f"http://127.0.0.1:{port}"
    until(lambda: is_there(port), 30.0)
    return url


def is_there(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def listening(port):
    """A service that takes connections and never answers."""
    return closing(socket.create_server(("127.0.0.1", port)))


@pytest.fixture(scope="module")
def sites(module_start, tmp_path_factory):
    """The mock's url, those of the nodes, and the doors by the number of hops."""
    directory = tmp_path_factory.mktemp("sites")
    mock = start_mock(module_start, directory)
    doors = [f"http://127.0.0.1:{port}" for port in free_ports(3)]
    gone_port, silent_port = free_ports(2)
    with listening(gone_port) as gone, listening(silent_port):
        file = directory / "sites.yaml"
        file.write_text(SITES.format(mock=mock, doors=doors, gone=gone_port, silent=silent_port))
        options = ("--json", "--port", str(free_row(3)))
        bed = module_start(*commands.SPILLOVER, "up", str(file), *options)
        urls = bed.ready()
        gone.close()
        host, _, port = doors[1].removeprefix("http://").partition(":")
        asking = [socket.create_connection((host, int(port))) for _ in range(OCCUPIED)]
        for one in asking:
            one.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        until(lambda: commands.held(commands.ask(f"{urls['b']}/state")[1]) == OCCUPIED)
        yield mock, urls, doors
        for one in asking:
            one.close()


@contextmanager
def asking(url, *, stream, what="speak"):
    """The answer, of which nothing has been read."""
    where = urlsplit(url)
    asked = {
        "model": "gpt-4o-mini", "messages": [{"role": "user", "content": what}], "stream": stream
    }  # fmt: skip
    with closing(HTTPConnection(where.hostname, where.port, timeout=20.0)) as line:
        told = {"Content-Type": "application/json", "Authorization": "Bearer mine"}
        line.request("POST", "/v1/chat/completions", json.dumps(asked), told)
        with line.getresponse() as answer:
            assert answer.status == 200
            yield answer


def texts(answer):
    """Each piece as it comes."""
    for line in answer:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])["choices"][0]["delta"].get("content")


@HOPS
def test_tokens_come_one_by_one_and_are_the_same(hops, sites):
    mock, _, doors = sites
    with asking(mock, stream=True) as answer:
        direct = list(texts(answer))
    with asking(doors[hops], stream=True) as answer:
        assert answer.headers["spillover-path"] == "a,b,c"[4 - 2 * hops :]
        came = [(time.monotonic(), text) for text in texts(answer)]
    assert [text for _, text in came] == direct
    assert "".join(text or "" for text in direct) == WORDS
    assert came[-1][0] - came[0][0] > 0.25, "they came at once, where the mock takes half a second"


@HOPS
def test_who_leaves_in_mid_stream_is_seen_to_leave(hops, sites):
    """And an answer that is not streamed is the same."""
    mock, urls, doors = sites
    told = []
    for url in (mock, doors[hops]):
        with asking(url, stream=False) as answer:
            told.append(json.load(answer))
    direct, through = ((one["choices"], one["usage"]) for one in told)
    assert through == direct
    home = urls["cba"[hops]]
    left = commands.ask(f"{mock}/seen")[1]["left"]
    cancelled = commands.ask(f"{home}/state")[1]["ledger"]["home"]["cancelled"]
    with asking(doors[hops], stream=True, what=AT_LENGTH) as answer:
        assert len(list(islice(texts(answer), 5))) == 5
    until(lambda: commands.ask(f"{mock}/seen")[1]["left"] == left + 1)
    until(lambda: commands.ask(f"{home}/state")[1]["ledger"]["home"]["cancelled"] == cancelled + 1)


def block(name):
    """The block of the page that begins with this file's name."""
    return re.search(rf"^```\w+\n(# {name}\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]


def test_the_example_as_it_is_printed(sites, up, tmp_path):
    mocks = [sites[0]] * 2
    doors = [f"http://127.0.0.1:{port}" for port in free_ports(2)]
    there = dict(zip((f"http://127.0.0.1:900{n}" for n in (1, 2)), mocks, strict=True))
    there |= zip((f"http://127.0.0.1:820{n}" for n in (1, 2)), doors, strict=True)
    for name in ("llm-sites.yaml", "chat.py"):
        text = block(name)
        for printed, url in there.items():
            text = text.replace(printed, url)
        tmp_path.joinpath(name).write_text(text)
    up("llm-sites.yaml", "--port", str(free_row(2)), cwd=tmp_path)
    told = subprocess.run(
        [sys.executable, "chat.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True,
    ).stdout  # fmt: skip
    assert sorted(line.split(" ", 1)[0] for line in told.splitlines()) == [
        *["paris"] * 2,
        *["paris,tokyo"] * 2,
    ]
    assert {line.split(" ", 1)[1] for line in told.splitlines()} == {WORDS}
