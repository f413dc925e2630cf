"""What the nodes of a testbed are told of certificates."""

from spillover.inputs.builtin import builtin_topology
from spillover.testbed.certified import VARIABLES, Certified


def test_certificates_of_whoever_starts_a_testbed_are_not_its_nodes(monkeypatch, tmp_path):
    """A node without https urls refuses to have any."""
    for variable in VARIABLES.values():
        monkeypatch.setenv(variable, "/etc/spillover/of-another")
    monkeypatch.setenv("SPILLOVER_KEPT", "yes")
    topology = builtin_topology("ring5")
    plain = Certified(None).environment(topology, "a")
    assert plain["SPILLOVER_KEPT"] == "yes"
    assert not plain.keys() & set(VARIABLES.values())
    certified = Certified(lambda directory, _, cluster: directory / cluster)
    certified.keep_in(tmp_path)
    told = certified.environment(topology, "a")
    own = tmp_path / "certificates" / "a"
    assert {name: told[name] for name in VARIABLES.values()} == {
        variable: str(own / name) for name, variable in VARIABLES.items()
    }
