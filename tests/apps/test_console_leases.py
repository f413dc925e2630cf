"""`/console` of a lease member, on a real Redis: the same page, fed with what `/state` shows."""

import http.client
import json
import time
from contextlib import closing

from spillover.apps.lease import server
from spillover.apps.lease.server import LeaseService
from spillover.live.leases.thread import LeaseGroupThread
from spillover.model.lease_times import LeaseTimes

TIMES = LeaseTimes(
    normal_lease_ms=300, max_lease_ms=1500, max_shutdown_ms=300, min_grab_ms=100, held_delay_ms=5
)
LIMIT_S = 30.0


def works(partition, epoch, stop_event):
    stop_event.wait()


def events(answer):
    name = None
    while line := answer.readline():
        if line.startswith(b"event: "):
            name = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            yield name, json.loads(line[6:])


def test_a_member_has_the_page_too(redis_servers, redis_server, monkeypatch):
    """Live for longer than other exchanges may take; and it does not hold up the end."""
    monkeypatch.setattr(server, "EXCHANGE_S", 0.5)
    group = redis_servers.new_name()
    member = LeaseGroupThread(
        redis_server.url, group, node="m1", handler=works, partitions=4, times=TIMES, seed=1
    )
    with LeaseService(member._member, ("127.0.0.1", 0)) as url, member:
        address = url.removeprefix("http://")
        with closing(http.client.HTTPConnection(address, timeout=LIMIT_S)) as page:
            page.request("GET", "/console")
            answer = page.getresponse()
            assert (answer.status, answer.getheader("x-frame-options")) == (200, "DENY")
            assert b"<title>Spillover m1</title>" in answer.read()
        with closing(http.client.HTTPConnection(address, timeout=LIMIT_S)) as stream:
            began_s = time.monotonic()
            stream.request("GET", "/console/events")
            told = events(stream.getresponse())
            name, hello = next(told)
            assert (name, hello["kind"], hello["group"]) == ("hello", "lease", group)
            assert (hello["actions"], hello["why_not"]) == (["drain"], None)
            for name, state in told:
                held = [row["node"] for row in state.get("allocation", [])] == ["m1"] * 4
                if name == "update" and held and time.monotonic() - began_s > 1.5:
                    break
            assert time.monotonic() - began_s < LIMIT_S
            left = time.monotonic()
            with closing(http.client.HTTPConnection(address, timeout=LIMIT_S)) as button:
                button.request("POST", "/console/drain", headers={"origin": url})
                assert button.getresponse().status == 202
            assert any(state.get("draining") for _, state in told)
    assert time.monotonic() - left < 5.0
