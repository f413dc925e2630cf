"""What tests of leases share: members, and the memory between them and what renews for them."""

import pytest

from spillover.live.leases.group import LeaseGroup
from spillover.live.leases.renewal.memory import LeaseMemory
from spillover.model.lease_times import LeaseTimes

TIMES = LeaseTimes(
    normal_lease_ms=300, max_lease_ms=900, max_shutdown_ms=300, min_grab_ms=100, held_delay_ms=5
)


@pytest.fixture
def group(redis_server, redis_servers):
    """`group(node, handler)`: a member of a group that no other test has."""
    name = redis_servers.new_name()

    def make(node, handler, *, kind=LeaseGroup, url=redis_server.url, **settings):
        settings = {"partitions": 6, "times": TIMES, "seed": 1, **settings}
        return kind(url, name, node=node, handler=handler, **settings)

    return make


@pytest.fixture
def memory():
    memory = LeaseMemory(4)
    yield memory
    memory.close()
