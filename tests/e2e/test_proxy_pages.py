"""A page of another origin in a real browser, at the door of a service that lets it in: it reads
the node's errors as it reads the service's answers, with and without cookies.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support import commands
from support.ports import free_ports, free_row

pytestmark = pytest.mark.threes

SITE = """\
clusters:
  - {{id: a, servers: 1, queue_limit: 1, handler: "proxy:{service}", proxy_url: "{door}"}}
"""

ASK = """async ([url, credentials, headers]) => {
  const answer = await fetch(url, {method: "POST", body: "{}", credentials, headers});
  const [seen, told] = [answer.headers.get("proxy-status"), await answer.json()];
  return [answer.status, told.reason || "", seen || "", answer.headers.get("x-should-retry") || ""];
}"""


TAKE_ALL = """url => {
  for (const body of ["1", "2"]) fetch(url, {method: "POST", body}).catch(() => {});
}"""


class Service(BaseHTTPRequestHandler):
    """Lets every origin in, by its name, and with cookies. It takes its time for `/slow`."""

    protocol_version = "HTTP/1.1"
    go_on = threading.Event()

    def _say(self, status, body=b""):
        self.send_response(status)
        if origin := self.headers.get("origin"):
            self.send_header("Access-Control-Allow-Origin", origin)
            self.send_header("Access-Control-Allow-Credentials", "true")
            self.send_header("Access-Control-Allow-Headers", "spillover-deadline-ms")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):  # who asked may have gone
            self.wfile.write(body)

    def do_GET(self):
        self._say(200, b"<title>page</title>")

    def do_OPTIONS(self):
        self._say(204)

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/slow":
            self.go_on.wait(30.0)
        self._say(200, b"{}")

    def log_message(self, *_):
        """Nobody reads it."""


@contextmanager
def serving():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        Service.go_on.set()
        server.shutdown()
        server.server_close()


def test_a_page_reads_errors_of_a_node(start, tmp_path, chromium, until):
    (port,) = free_ports(1)
    door = f"http://127.0.0.1:{port}"
    with serving() as service:
        file = tmp_path / "site.yaml"
        file.write_text(SITE.format(service=service, door=door))
        bed = start(*commands.SPILLOVER, "up", str(file), "--json", "--port", str(free_row(1)))
        url = bed.ready()["a"]
        context = chromium.new_context()
        page = context.new_page()
        page.goto(service)

        def ask(path, credentials="omit", headers=None):
            return page.evaluate(ASK, [f"{door}{path}", credentials, headers or {}])

        for credentials in ("omit", "include"):
            assert ask("/", credentials) == [200, "", "", ""]
        late = {"Spillover-Deadline-Ms": "300"}  # which no form could send: it is asked before
        for credentials in ("omit", "include"):
            status, reason, seen, again = ask("/slow", credentials, late)
            assert (status, reason, again) == (504, "deadline_exceeded", "false")
            assert seen.startswith("spillover; error=http_response_timeout; details=")
        page.evaluate(TAKE_ALL, f"{door}/slow")
        until(lambda: commands.held(commands.ask(f"{url}/state")[1]) == 2)
        assert ask("/", "include", late)[:2] == [429, "queue_full"]
        context.close()
