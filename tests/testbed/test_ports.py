"""Addresses of a testbed's clusters, and that two testbeds never choose at the same time."""

import asyncio
import socket
from contextlib import ExitStack

import pytest

from spillover.inputs.builtin import builtin_topology
from spillover.model.errors import InputError, RunError
from spillover.model.topology import Cluster, ClusterNode, Topology
from spillover.testbed.ports import FIRST_PORT, passed_over, start_lock, with_addresses


@pytest.fixture
def occupied():
    """A loopback port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def topology(*urls):
    clusters = (Cluster(id=f"c{index}", servers=1, url=url) for index, url in enumerate(urls))
    return Topology(name="t", clusters=tuple(clusters))


def ports(chosen):
    return [int(cluster.url.rsplit(":", 1)[1]) for cluster in chosen.clusters]


def test_clusters_without_a_url_get_free_loopback_ports():
    """Each its own, in order, from the first one up; those in use are skipped."""
    chosen = with_addresses(builtin_topology("chord20"), "file")
    assert len(set(ports(chosen))) == 20
    assert ports(chosen) == sorted(ports(chosen))
    assert ports(chosen)[0] >= FIRST_PORT
    assert all(cluster.url.startswith("http://127.0.0.1:") for cluster in chosen.clusters)
    with ExitStack() as stack:
        # Another testbed may have taken it meanwhile: then it is in use all the same.
        for port in ports(chosen)[:3]:
            try:
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
        again = with_addresses(builtin_topology("chord20"), "file")
        assert not set(ports(chosen)[:3]) & set(ports(again))


def test_given_urls_stay_and_are_not_given_to_others():
    free = ports(with_addresses(topology(None, None), "file"))
    given = f"http://localhost:{free[0]}"
    chosen = with_addresses(topology(None, given), "file")
    assert chosen.clusters[1].url == given
    assert ports(chosen)[0] > free[0]


def test_a_given_url_in_use_is_named(occupied):
    url = f"http://127.0.0.1:{occupied}"
    with pytest.raises(InputError) as raised:
        with_addresses(topology(None, url), "t.yaml")
    assert (raised.value.source, raised.value.field) == ("t.yaml", "clusters[1].url")
    assert raised.value.expected.startswith(f"expected an address that is free, got {url} (")


def test_an_address_of_elsewhere_cannot_be_bound():
    with pytest.raises(InputError, match=r"clusters\[0\].url"):
        with_addresses(topology("http://192.0.2.1:8101"), "file")


def test_the_first_port_is_the_user_s(occupied):
    """What is in use after it is passed over, and told."""
    wanted = topology(None, None)
    chosen = with_addresses(wanted, "file", occupied)
    assert ports(chosen)[0] > occupied
    skipped = passed_over(wanted, chosen, occupied)
    assert skipped[0] == occupied
    assert not set(skipped) & set(ports(chosen))
    assert passed_over(wanted, chosen, ports(chosen)[0]) == list(
        range(ports(chosen)[0] + 1, ports(chosen)[1])
    )


def test_what_the_file_gives_is_not_passed_over():
    """A cluster that has its url by the file takes its port from nobody."""
    free = ports(with_addresses(topology(None, None, None), "file"))
    wanted = topology(None, f"http://127.0.0.1:{free[0]}")
    chosen = with_addresses(wanted, "file", free[0])
    assert free[0] not in passed_over(wanted, chosen, free[0])
    assert passed_over(wanted, wanted.with_urls({"c0": "http://127.0.0.1:70"}), 69) == [69]


def test_no_port_is_left():
    with pytest.raises(RunError, match="no free port between 65535 and 65535"):
        with_addresses(topology(None, None), "file", 65_535)


async def test_one_starts_at_a_time():
    """The next one waits, and gives up at its limit."""
    second_in = asyncio.Event()

    async def second():
        async with start_lock(60.0):
            second_in.set()

    async with start_lock(60.0):
        waiting = asyncio.create_task(second())
        with pytest.raises(RunError, match="another testbed has been starting"):
            async with start_lock(0.2):
                pytest.fail("two at a time")
        assert not second_in.is_set()
    await asyncio.wait_for(waiting, 60.0)
    assert second_in.is_set()


def test_each_of_several_nodes_gets_a_port_of_its_own(occupied):
    """In the order of clusters; doors of services come behind all of them."""
    wanted = Topology(
        name="t",
        clusters=(
            Cluster(id="a", servers=2, nodes=2, handler="proxy:http://127.0.0.1:1"),
            Cluster(id="b", servers=1),
        ),
    )
    first = with_addresses(wanted, "file").clusters[0].nodes
    port = int(first[0].url.rsplit(":", 1)[1])
    chosen = with_addresses(wanted, "file", port)
    urls = [node.url for node in chosen.clusters[0].nodes] + [chosen.clusters[1].url]
    urls += [node.proxy_url for node in chosen.clusters[0].nodes]
    found = [int(url.rsplit(":", 1)[1]) for url in urls]
    assert found == sorted(set(found))
    if found == list(range(port, port + 5)):  # else others took some meanwhile
        assert passed_over(wanted, chosen, port) == []
    nodes = ClusterNode(url=first[0].url), ClusterNode(url=f"http://127.0.0.1:{occupied}")
    given = Topology(name="t", clusters=(Cluster(id="a", servers=2, nodes=nodes),))
    with pytest.raises(InputError, match=r"clusters\[0\].nodes\[1\].url: expected an address that"):
        with_addresses(given, "file")
