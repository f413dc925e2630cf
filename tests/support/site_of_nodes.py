"""A site of two nodes in front of a backend that counts, and clients that load it."""

import itertools
import json
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from spillover.client import Spillover
from spillover.core.overflow.names import owner_of

SERVERS = 4
SERVICE_S = 0.05
TOPOLOGY = """
name: site-of-nodes
clusters:
  - {id: a, servers: %d, nodes: %d, handler: "http:http://127.0.0.1:%d/work"}
  - {id: b, servers: 1, handler: "http:http://127.0.0.1:%d/other"}
links: [{between: [a, b], delay_ms: 5}]
"""


class Backend(ThreadingHTTPServer):
    """Takes SERVICE_S for each request, and counts how many run at a time and how often each name
    ran."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.running, self.most, self.times = 0, 0, Counter()
        self.running_at, self.most_at = Counter(), Counter()
        """As `running` and `most`, by path."""
        self.lets_go = threading.Event()
        """Until then those run whose work is to be held."""
        self.longest_s = 0.0
        """How long the longest request took here, of a machine with other work."""

    def handle_error(self, *_):
        """Nodes die with their connections."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        counts = self.path == "/work"
        backend = self.server
        began_s = time.monotonic()
        with backend.lock:
            backend.running += counts
            backend.most = max(backend.most, backend.running)
            backend.running_at[self.path] += 1
            now = backend.running_at[self.path]
            backend.most_at[self.path] = max(backend.most_at[self.path], now)
            backend.times[self.headers.get("idempotency-key")] += 1
        told = json.loads(body)
        work = told if isinstance(told, dict) else {}
        if work.get("is_held"):
            backend.lets_go.wait(60.0)
        else:
            threading.Event().wait(work.get("takes_s", SERVICE_S))
        with backend.lock:
            backend.running -= counts
            backend.running_at[self.path] -= 1
            backend.longest_s = max(backend.longest_s, time.monotonic() - began_s)
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def call(url, method="GET", body=None, **headers):
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    data = None if body is None else json.dumps(body).encode()
    asked = Request(url, data, told, method=method)  # noqa: S310 - of the test's own nodes
    try:
        with urlopen(asked, timeout=30) as answer:  # noqa: S310
            return answer.status, dict(answer.headers), json.loads(answer.read())
    except HTTPError as error:
        return error.code, dict(error.headers), json.loads(error.read())


def share(url):
    state = call(f"{url}/state")[2]
    assert state["servers"] == SERVERS
    return state["site"]["share"], state["site"]["members"]


def shares(urls):
    return [share(urls[name]) for name in ("a/1", "a/2")]


def name_of(node, begins):
    """A name that begins so and belongs to this node of two."""
    names = (f"{begins}-{number}" for number in itertools.count())
    return next(name for name in names if owner_of(name, (1, 2)) == node)


@contextmanager
def load(nodes, until, of="c", types=("default",), **options):
    """Clients with keys, `of` before them, who must see no error; gives what waits until more of
    them have their answers. Each asks for these types in turn."""
    ended, stop = [], threading.Event()

    def ask(client):
        with Spillover(nodes[client % 2 :] + nodes[: client % 2], **options) as spillover:
            for count in itertools.count():
                key = f"{of}-{client}-{count}"
                told = {"key": key, "type": types[count % len(types)]}
                ended.append(spillover.run({"key": key}, **told).result["key"] == key)
                if stop.is_set():
                    return

    def more():
        before = len(ended)
        until(lambda: len(ended) > before + 50 or any(map(Future.done, clients)), what="load")
        for client in clients:
            if client.done():
                client.result()  # which raises

    with ThreadPoolExecutor(10) as pool:
        clients = [pool.submit(ask, client) for client in range(10)]
        try:
            more()
            yield more
        finally:
            stop.set()
        for client in clients:
            client.result()
    assert all(ended)


def shares_are_whole(urls):
    try:
        told = shares(urls)
    except (OSError, LookupError):
        return False
    return all(members == [1, 2] for _, members in told)
