"""What a topology file says of a service's statuses, and of how it is asked: what is read, and what
is said of the rest."""

import pytest

from spillover.inputs.topology_file import dump_topology, load_topology
from spillover.model.errors import InputError
from spillover.model.topology import NOT_RUN_STATUSES


def load(tmp_path, more, handler="http:http://127.0.0.1:9/"):
    file = tmp_path / "t.yaml"
    file.write_text(f'clusters:\n  - {{id: a, servers: 1, handler: "{handler}"{more}}}\n')
    return load_topology(str(file))


def statuses_of(topology):
    return topology.cluster("a").statuses_not_run


@pytest.mark.parametrize(
    ("more", "handler", "statuses"),
    [
        ("", "http:http://127.0.0.1:9/", NOT_RUN_STATUSES),
        ("", "proxy:http://127.0.0.1:9", ()),
        (", not_run_statuses: [429, 503]", "proxy:http://127.0.0.1:9", (429, 503)),
        (", not_run_statuses: [404]", "http:http://127.0.0.1:9/", (404,)),
        (", not_run_statuses: [503, 429, 599]", "http:http://127.0.0.1:9/", (503, 429, 599)),
        (", not_run_statuses: []", "http:http://127.0.0.1:9/", ()),
    ],
)
def test_what_is_read_is_written_again(tmp_path, more, handler, statuses):
    topology = load(tmp_path, more, handler)
    assert statuses_of(topology) == statuses
    (tmp_path / "again.yaml").write_text(dump_topology(topology))
    assert statuses_of(load_topology(str(tmp_path / "again.yaml"))) == statuses


NO_STATUSES = ("[429, 200]", "[301]", "[600]", "[-503]", "[503, 429, 503]", "[busy]", '["503"]')
NO_LISTS = ("[503.5]", "[true]", "[null]", "503", "[[503]]", "{503: 1}", f"[{10**400}]")


@pytest.mark.parametrize("told", NO_STATUSES + NO_LISTS, ids=lambda told: told[:20])
def test_what_is_not(tmp_path, told):
    """File, field and what was expected, in one line."""
    with pytest.raises(InputError, match=r"t\.yaml.*not_run_statuses.*expected") as caught:
        load(tmp_path, f", not_run_statuses: {told}")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_only_along_with_a_handler_of_a_service(tmp_path):
    with pytest.raises(InputError, match=r"not_run_statuses.*http: or proxy: handler"):
        load(tmp_path, ", not_run_statuses: [404]", handler="sleep")


@pytest.mark.parametrize(("more", "status", "counts"), [
    ("", 500, True), ("", 501, False), ("", 505, False), ("", 404, False), ("", 302, True),
    ("", None, True),
    (", failure_statuses: [502, 504]", 500, False), (", failure_statuses: [502, 504]", 504, True),
    (", failure_statuses: []", 500, False), (", failure_statuses: []", None, True),
])  # fmt: skip
def test_what_is_held_against_a_site(tmp_path, more, status, counts):
    """Of what its service has failed: no answer always, a client's mistake never."""
    topology = load(tmp_path, more)
    (tmp_path / "again.yaml").write_text(dump_topology(topology))
    for read in (topology, load_topology(str(tmp_path / "again.yaml"))):
        assert read.cluster("a").is_failure(status) == counts


@pytest.mark.parametrize("probe", ["GET /health", "HEAD /", "OPTIONS /v1/models?all=1"])
def test_a_probe_is_read_and_written_again(tmp_path, probe):
    topology = load(tmp_path, f', probe: "{probe}"', "proxy:http://127.0.0.1:9")
    assert topology.cluster("a").probe == probe
    (tmp_path / "again.yaml").write_text(dump_topology(topology))
    assert load_topology(str(tmp_path / "again.yaml")).cluster("a").probe == probe


@pytest.mark.parametrize(("more", "field"), [
    (", failure_statuses: [404]", "failure_statuses"),
    (", failure_statuses: [600]", "failure_statuses"),
    (", probe: /health", "probe"),
    (', probe: "POST /work"', "probe"),
    (', probe: "GET health"', "probe"),
    (', probe: "GET /a b"', "probe"),
    (", probe: 7", "probe"),
])  # fmt: skip
def test_what_they_cannot_be(tmp_path, more, field):
    with pytest.raises(InputError, match=rf"{field}.*expected"):
        load(tmp_path, more)


@pytest.mark.parametrize("more", [", failure_statuses: [500]", ', probe: "GET /"'])
def test_they_are_of_a_service(tmp_path, more):
    with pytest.raises(InputError, match="http: or proxy: handler"):
        load(tmp_path, more, handler="sleep")
