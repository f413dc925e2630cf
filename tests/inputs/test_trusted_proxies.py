"""The field `trusted_proxies` of a topology file: what is read, and what is said of the rest."""

from ipaddress import ip_network

import pytest

from spillover.inputs.topology_file import dump_topology, load_topology
from spillover.model.errors import InputError


def load(tmp_path, told, handler="proxy:http://127.0.0.1:9"):
    file = tmp_path / "t.yaml"
    file.write_text(
        f'clusters:\n  - {{id: a, servers: 1, handler: "{handler}", trusted_proxies: {told}}}\n'
    )
    return load_topology(str(file))


@pytest.mark.parametrize(
    ("told", "networks"),
    [
        ("[]", ()),
        ('["10.0.0.0/8", "192.0.2.1"]', (ip_network("10.0.0.0/8"), ip_network("192.0.2.1/32"))),
        ('["2001:db8::/32"]', (ip_network("2001:db8::/32"),)),
    ],
)
def test_what_is_read_is_written_again(tmp_path, told, networks):
    topology = load(tmp_path, told)
    assert topology.cluster("a").trusted_networks == networks
    (tmp_path / "again.yaml").write_text(dump_topology(topology))
    again = load_topology(str(tmp_path / "again.yaml"))
    assert again.cluster("a").trusted_networks == networks


@pytest.mark.parametrize(
    "told", ['["balancer"]', '["10.0.0.1/8"]', '["10.0.0.0/33"]', "[10]", '""']
)
def test_what_is_no_network_is_told_in_one_line(tmp_path, told):
    with pytest.raises(InputError) as caught:
        load(tmp_path, told)
    line = str(caught.value)
    assert "trusted_proxies" in line
    assert "expected" in line
    assert "\n" not in line


def test_it_means_something_along_with_proxy_alone(tmp_path):
    with pytest.raises(InputError, match="expected only along with a proxy: handler"):
        load(tmp_path, '["10.0.0.1"]', "http:http://127.0.0.1:9/")
