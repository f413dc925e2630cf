"""`spillover up` in front of services that are down, slow, or fail at once: it is up all the same,
and says what does not answer."""

import socket
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SITES = """
name: sites
clusters:
  - {{id: dead-http, servers: 1, handler: "http:http://127.0.0.1:{down}/run?secret=1"}}
  - {{id: dead-proxy, servers: 1, handler: "proxy:http://127.0.0.1:{down}"}}
  - {{id: fails, servers: 1, handler: "proxy:http://127.0.0.1:{fails}"}}
  - {{id: slow, servers: 1, handler: "proxy:http://127.0.0.1:{slow}"}}
links: []
"""


class Answers(BaseHTTPRequestHandler):
    """Says the status of its server."""

    def do_GET(self):
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Nothing."""


def service(port, status):
    """One that answers so, in a thread."""
    server = ThreadingHTTPServer(("127.0.0.1", port), Answers)
    server.status = status
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def status_of(url, deadline_ms=5000):
    """What the door says."""
    asked = urllib.request.Request(url, headers={"Spillover-Deadline-Ms": str(deadline_ms)})  # noqa: S310
    try:
        with urllib.request.urlopen(asked, timeout=10) as response:  # noqa: S310 - loopback
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_up_is_up_whatever_its_services_do(up, until, tmp_path, free_ports):
    (down,) = free_ports(1)
    failing = service(0, 500)
    with socket.create_server(("127.0.0.1", 0)) as slow:  # it takes connections, and that is all
        file = tmp_path / "sites.yaml"
        ports = {"fails": failing.server_port, "slow": slow.getsockname()[1]}
        file.write_text(SITES.format(down=down, **ports))
        bed, urls = up(str(file))
        assert len(urls) == 4
        until(lambda: bed.stderr.count("\n") == 2)
        said = sorted(line.partition(" (log")[0] for line in bed.stderr.splitlines())
        assert said == [
            f"spillover: the service behind cluster dead-{kind} does not answer"
            for kind in ("http", "proxy")
        ]
        doors = bed.ready_line()["proxies"]
        assert status_of(doors["fails"]) == 500
        assert status_of(doors["slow"], deadline_ms=200) == 504
        assert status_of(doors["dead-proxy"]) == 503
        back = service(down, 204)
        until(lambda: status_of(doors["dead-proxy"]) == 204)
        until(lambda: bed.stderr.count("answers again") == 2)
        for server in (failing, back):
            server.shutdown()
            server.server_close()
        assert bed.end() == 0
