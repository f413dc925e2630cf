"""A node some of whose neighbors' names hang at the name service, in front of a service one of
whose addresses swallows connections: by a library that answers in place of the system's."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support.commands import SPILLOVER
from support.silent_address import swallowing
from support.waiting import slack

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is this machine's on Linux"),
]

NEIGHBORS = 6
"""More than uvloop has threads."""

TOPOLOGY = """
name: hosts
clusters:
  - {{id: a, servers: 4, url: "http://127.0.0.1:{node}", handler: "http:http://two.test:{service}/"}}
  - {{id: b, servers: 4, url: "http://b.hangs.test:{service}"}}
{more}links:
  - {{between: [a, b]}}
{links}"""

RESOLVER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

typedef int (*resolver)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *name, const char *port, const struct addrinfo *hints,
                struct addrinfo **found) {
  resolver real = (resolver)dlsym(RTLD_NEXT, "getaddrinfo");
  if (name && strstr(name, ".hangs.")) {
    sleep(600);
    return EAI_AGAIN;
  }
  if (!name || strcmp(name, "two.test")) return real(name, port, hints, found);
  struct addrinfo *second;
  int failed = real("127.0.0.2", port, hints, found);
  if (!failed) failed = real("127.0.0.1", port, hints, &second);
  if (!failed) (*found)->ai_next = second;
  return failed;
}
"""


class Closes(BaseHTTPRequestHandler):
    """One answer on each connection, so that each request opens one."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture(scope="module")
def resolver(require, tmp_path_factory):
    """A library for LD_PRELOAD."""
    require(shutil.which("gcc"), "gcc (Debian: apt-get install gcc)")
    directory = tmp_path_factory.mktemp("resolver")
    (directory / "resolver.c").write_text(RESOLVER)
    command = ["gcc", "-shared", "-fPIC", "-o", "resolver.so", "resolver.c", "-ldl"]
    subprocess.run(command, cwd=directory, check=True)
    return directory / "resolver.so"


def test_names_that_hang_and_addresses_that_do_not_answer_hold_nothing_up(
    start, ask, until, free_ports, resolver, tmp_path
):
    (node,) = free_ports(1)
    service = ThreadingHTTPServer(("127.0.0.1", 0), Closes)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    others = [f"n{number}" for number in range(NEIGHBORS)]
    more = [f'  - {{id: {one}, servers: 1, url: "http://{one}.hangs.test:1"}}\n' for one in others]
    links = [f"  - {{between: [a, {one}]}}\n" for one in others]
    file, url = tmp_path / "hosts.yaml", f"http://127.0.0.1:{node}"
    ports = {"node": node, "service": service.server_port}
    file.write_text(TOPOLOGY.format(**ports, more="".join(more), links="".join(links)))
    with swallowing("127.0.0.2", service.server_port):
        running = start(
            "env", f"LD_PRELOAD={resolver}", *SPILLOVER, "node",
            "--topology", str(file), "--cluster", "a",
        )  # fmt: skip
        until(lambda: "node listens" in running.stderr)
        until(lambda: running.stderr.count("is still being looked up") > NEIGHBORS)
        for _ in range(20):
            began_s = time.monotonic()
            status, told = ask(f"{url}/requests", {"payload": {}})
            assert status == 200, json.dumps(told)
            assert time.monotonic() - began_s < slack()
        assert running.end(signal.SIGTERM, 10.0 * slack()) == 0
    service.shutdown()
    service.server_close()
