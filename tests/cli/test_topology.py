"""`spillover topology`: what it writes for any topology, and what it says of those it cannot."""

import json
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from spillover.cli import main
from spillover.inputs.topology_file import load_topology

KINDS = ("compose", "kubernetes")
TWO = "clusters: [{{id: {0}, servers: 1}}, {{id: {1}, servers: 1}}]\n"


def write(out, topology, *options, kind="compose"):
    assert main(["topology", kind, str(topology), "--out", str(out), *options]) == 0


@pytest.fixture
def site(tmp_path):
    """`site(fields)`: a file with one cluster a."""

    def written(fields):
        path = tmp_path / "t.yaml"
        path.write_text(f"clusters: [{{id: a, {fields}}}]\n")
        return path

    return written


def services_in(out):
    return yaml.safe_load(out.read_text())["services"]


def write_urls(directory, *urls):
    """A topology file whose clusters a, b and so on have these urls."""
    path = directory / "urls.yaml"
    named = zip("abc", urls, strict=False)
    lines = [f"- {{id: {cluster}, servers: 1, url: 'http://{url}'}}" for cluster, url in named]
    path.write_text("\n".join(["clusters:", *lines]))
    return path


def documents_in(directory, kind):
    return [
        each
        for path in sorted(directory.glob("*.yaml"))
        for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if each["kind"] == kind
    ]


@pytest.mark.parametrize("name", ["ring5", "comte11"])
def test_a_service_for_every_cluster(name, tmp_path, capsys):
    """With its own site's network, the wide-area network, limits, a health check, and a port."""
    write(tmp_path / "compose.yaml", name, "--json")
    told = json.loads(capsys.readouterr().out)
    compose = yaml.safe_load((tmp_path / "compose.yaml").read_text())
    topology = load_topology(name)
    for cluster in topology.cluster_ids:
        service = compose["services"][f"node-{cluster}"]
        assert service["networks"] == ["wan", f"site-{cluster}"]
        assert service["cpus"] == 1
        assert service["mem_limit"] == "256m"
        assert service["healthcheck"]["test"][0] == "CMD"
        port = told["clusters"][cluster].rpartition(":")[2]
        variable = f"SPILLOVER_PORT_{cluster.upper()}"
        assert service["ports"] == [f"127.0.0.1:${{{variable}:-{port}}}:8080"]
        assert service["command"][:5] == [
            *("node", "--topology", "/etc/spillover/topology.yaml", "--cluster", cluster)
        ]
    assert set(compose["networks"]) == {"wan", "watch"} | {
        f"site-{c}" for c in topology.cluster_ids
    }
    assert [Path(file).is_file() for file in told["files"]] == [True] * len(told["files"])


def test_a_container_is_given_longer_than_a_node_drains(tmp_path):
    """Else the engine kills what the node would have finished."""
    write(tmp_path / "compose.yaml", "ring5")
    node = services_in(tmp_path / "compose.yaml")["node-a"]
    drain_s = int(node["command"][node["command"].index("--drain-timeout-s") + 1])
    assert int(node["stop_grace_period"].removesuffix("s")) > drain_s
    write(tmp_path / "k", "ring5", kind="kubernetes")
    sets = {each["metadata"]["name"]: each for each in documents_in(tmp_path / "k", "StatefulSet")}
    pod = sets["node-a"]["spec"]["template"]["spec"]
    args = pod["containers"][0]["args"]
    lame_duck_s = int(args[args.index("--lame-duck-s") + 1])
    assert lame_duck_s == 5
    assert pod["terminationGracePeriodSeconds"] > drain_s + lame_duck_s


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_read_the_topology_that_was_given(kind, tmp_path):
    """But for the addresses, which are those that containers have for each other."""
    source = tmp_path / "sites.yaml"
    source.write_text(
        "name: sites\nmax_hops: 3\nclusters:\n"
        "- {id: paris, servers: 4, handler: 'python:shrink:compress', url: 'http://10.0.0.1:9000'}\n"
        "- {id: tokyo-2, servers: 2, service_ms: 1e3}\n"
        "links: [{between: [paris, tokyo-2], delay_ms: 120}]\n"
    )
    out = tmp_path / "out"
    write(out / "compose.yaml" if kind == "compose" else out, source, kind=kind)
    if kind == "kubernetes":
        (config,) = documents_in(out, "ConfigMap")
        (out / "inside.yaml").write_text(config["data"]["topology.yaml"])
        inside = load_topology(str(out / "inside.yaml"))
    else:
        inside = load_topology(str(out / "topology" / "topology.yaml"))
        assert load_topology(str(out / "topology" / "netem.yaml")).links[0].delay_ms == 0
    given = load_topology(str(source))
    assert inside.with_urls({c.id: None for c in inside.clusters}).links == given.links
    assert [c.url for c in inside.clusters] == [
        "http://node-paris:8080",
        "http://node-tokyo-2:8080",
    ]
    assert len({c.peer_url for c in inside.clusters}) == 2
    assert (inside.max_hops, inside.cluster("tokyo-2").service_ms) == (3, 1000)


def test_the_port_of_a_url_is_the_one_that_is_published(tmp_path, capsys):
    """The others follow from the first port, around those that are taken."""
    source = tmp_path / "t.yaml"
    source.write_text(
        "clusters: [{id: a, servers: 1}, {id: b, servers: 1, url: 'http://h:9091'}, "
        "{id: c, servers: 1}]\n"
    )
    write(tmp_path / "compose.yaml", source, "--json", "--first-port", "9089")
    clusters = json.loads(capsys.readouterr().out)["clusters"]
    urls = {"a": 9089, "b": 9091, "c": 9092}
    assert clusters == {c: f"http://127.0.0.1:{port}" for c, port in urls.items()}


def test_python_handlers_find_their_modules(tmp_path, monkeypatch):
    """The working directory is there in the container, for reading."""
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    Path("t.yaml").write_text("clusters: [{id: a, servers: 2, handler: 'python:shrink:compress'}]")
    write(tmp_path / "deploy" / "compose.yaml", "t.yaml")
    node = services_in(tmp_path / "deploy" / "compose.yaml")["node-a"]
    assert "../mine:/work:ro" in node["volumes"]


UNLIKE = (
    "workers: process, servers: [{id: s, handler: 'python:m:f'}, {id: t, handler: spin}, {id: u}, "
    "{id: v, handler: 'python:m:g'}], classes: [{id: c, servers: [s, u], tokens: 3}, "
    "{id: d, servers: [t], tokens: 2}, {id: e, servers: [v]}], service_ms: 10, discipline: "
)


@pytest.mark.parametrize(
    ("fields", "of_its_own_mb", "expected"),
    [
        # Worker processes have memory of their own: what each may take is added.
        (
            "servers: 2, handler: 'python:m:f', workers: process, memory_limit_bytes: 104857600",
            300,
            "500m",
        ),
        # Each of unlike servers has as many as it runs at a time: here three and one more, and two
        # for the handler spin; one each where requests run one after another. 64 MB each.
        (UNLIKE + "ps", 372, "756m"),
        (UNLIKE + "fcfs", 372, "564m"),
        # What may be held fits twice, with what is copied, and the node.
        (f"servers: 2, held_limit_bytes: {64 * 2**20}", None, "256m"),
        (f"servers: 2, held_limit_bytes: {512 * 2**20}", None, "1152m"),
    ],
)
def test_a_container_has_memory_for_all_that_runs_in_it(
    fields, of_its_own_mb, expected, site, tmp_path
):
    """Else the system ends it before it refuses."""
    more = ("--memory-mb", str(of_its_own_mb)) if of_its_own_mb else ()
    write(tmp_path / "compose.yaml", site(fields), *more)
    assert services_in(tmp_path / "compose.yaml")["node-a"]["mem_limit"] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_names_that_no_container_can_bear(kind, tmp_path, refused):
    """The file, the field, what was expected and what stood there."""
    source = tmp_path / "t.yaml"
    for bad in ("Paris", "a_b", "a.b", "-a", "a-", "x" * 41):
        source.write_text(TWO.format("a", f"'{bad}'"))
        said = refused("topology", kind, source, "--out", tmp_path / "out")
        assert said.startswith(f"{source}: clusters[1].id: expected 1 to 40 of a-z 0-9 and -")
        assert said.endswith(f"got {bad!r}\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("urls", "complaint"),
    [
        (("localhost:9", "127.0.0.1:9"), "expected a port of its own, since all are published on"),
        (("localhost:9", "127.0.0.1:9"), "got 9, which cluster a has"),
        (("h:8", "localhost:9090"), "got 9090, which Prometheus has"),
        (("127.0.0.2", "[::1]"), "got 80, which cluster a has"),
    ],
)
def test_ports_that_collide(urls, complaint, tmp_path, refused):
    """All of them are on 127.0.0.1 here, so that two addresses of this machine are not enough."""
    source = write_urls(tmp_path, *urls)
    said = refused("topology", "compose", source, "--out", tmp_path / "compose.yaml")
    assert said.startswith(f"{source}: clusters[1].url: ")
    assert complaint in said


@pytest.mark.parametrize(
    ("urls", "ports"),
    [
        (("paris.example:8080", "tokyo.example:8080"), (8080, 8101)),
        (("10.0.0.1:9090", "10.0.0.2:3000"), (8101, 8102)),  # Prometheus's and Grafana's
        (("paris.example", "tokyo.example", "127.0.0.1"), (8101, 8102, 80)),
        (("127.example:8101", "[fe80::1]:8101", "h:8102"), (8101, 8103, 8102)),
    ],
)
def test_urls_of_other_machines_may_share_a_port(urls, ports, tmp_path, capsys):
    """As they do in production. Here the first has it, unless this machine's own url wants it."""
    write(tmp_path / "compose.yaml", write_urls(tmp_path, *urls), "--json")
    told = json.loads(capsys.readouterr().out)["clusters"]
    assert told == {c: f"http://127.0.0.1:{port}" for c, port in zip("abc", ports, strict=False)}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("compose", "nowhere"), "nowhere: expected a built-in topology"),
        (("compose", "ring5", "--first-port", "65534"), "--first-port: expected room up to 65535"),
        (("compose", "ring5", "--first-port", "0"), "--first-port: expected 1 to 65535, got 0"),
        (("kubernetes", "ring5", "--memory-mb", "10"), "--memory-mb: expected at least 96, got 10"),
        (("compose", "ring5", "--out", "/proc/x/compose.yaml"), "--out: expected a place that can"),
        (("compose", "ring5", "--out", "."), "--out: expected a file to write, got the directory"),
    ],
)
def test_bad_options(arguments, complaint, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    assert complaint in refused("topology", *arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_others_are_left_alone(kind, tmp_path, refused):
    """Its own it replaces; `--force` replaces all."""
    out, theirs = {
        "compose": (tmp_path / "compose.yaml", tmp_path / "prometheus" / "prometheus.yml"),
        "kubernetes": (tmp_path, tmp_path / "network.yaml"),
    }[kind]
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("# mine\n")
    assert f"{theirs} is not" in refused("topology", kind, "ring5", "--out", out)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [theirs]
    write(out, "ring5", "--force", kind=kind)
    write(out, "chord10", kind=kind)
    assert "topology chord10" in theirs.read_text()


def test_a_site_that_is_gone_leaves_no_manifest(tmp_path, refused, require):
    """`kubectl apply -f` would start it again. A directory is nobody's file; whose one is that
    cannot be read cannot be known: one line says so, and it stays."""
    write(tmp_path, "chord10", kind="kubernetes")
    (tmp_path / "site-zz.yaml").mkdir()
    write(tmp_path, "ring5", kind="kubernetes")
    names = [path.name for path in sorted(tmp_path.glob("site-*"))]
    assert names == [f"site-{c}.yaml" for c in ("a", "b", "c", "d", "e", "zz")]
    unreadable = Path("/proc/self/mem")
    require(unreadable.is_file(), "a file that not even root can read: /proc of Linux")
    (tmp_path / "site-zz.yaml").rmdir()
    (tmp_path / "site-zz.yaml").symlink_to(unreadable)
    said = refused("topology", "kubernetes", "ring5", "--out", tmp_path)
    assert f"--out: expected only files that can be read and removed, got {tmp_path}/site-z" in said
    assert (tmp_path / "site-zz.yaml").is_symlink()


@pytest.mark.parametrize("ids", [("x", "x-peers"), ("x", "peers-x"), ("x", "x-0")])
def test_no_two_manifests_have_one_name(ids, tmp_path):
    """Kubernetes would take the last one for all of them."""
    source = tmp_path / "t.yaml"
    source.write_text(TWO.format(*ids))
    out = tmp_path / "out"
    write(out, source, kind="kubernetes")
    for kind in ("Service", "StatefulSet", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget"):
        names = [each["metadata"]["name"] for each in documents_in(out, kind)]
        assert len(names) == len(set(names))
        assert kind != "StatefulSet" or set(names) == {f"node-{cluster}" for cluster in ids}


def test_neighbors_call_a_pod_by_a_name_that_it_has(tmp_path):
    """The pod of a StatefulSet has a name within the Service that the set names, if it is headless;
    there it is found also while it is not ready. An update replaces a pod that never became ready:
    with the usual policy, OrderedReady, it would wait for that one until somebody deletes it."""
    write(tmp_path, "ring5", kind="kubernetes")
    (config,) = documents_in(tmp_path, "ConfigMap")
    clusters = yaml.safe_load(config["data"]["topology.yaml"])["clusters"]
    services, sets = (
        {each["metadata"]["name"]: each["spec"] for each in documents_in(tmp_path, kind)}
        for kind in ("Service", "StatefulSet")
    )
    assert len(clusters) == len(sets) == 5
    for cluster in clusters:
        pod, _, service = urlsplit(cluster["peer_url"]).hostname.partition(".")
        owner = sets[pod.removesuffix("-0")]
        assert owner["serviceName"] == service
        assert owner["podManagementPolicy"] == "Parallel"
        assert services[service]["clusterIP"] == "None"
        assert services[service]["publishNotReadyAddresses"] is True
        assert services[service]["selector"] == owner["selector"]["matchLabels"]
        assert services[service]["selector"]["spillover.dev/site"] == cluster["id"]


@pytest.mark.parametrize("handler", ["dask:h:8786:m:f", "sleep"])
def test_an_image_that_is_built_elsewhere_needs_it_too(handler, site, tmp_path, capsys):
    """The user is told, as soon as there is such a handler."""
    source = site(f"servers: 1, handler: '{handler}'")
    write(tmp_path / "k", source, "--image", "mine:1", kind="kubernetes")
    line = 'dask handlers: the image mine:1 must be built with EXTRAS="leases dask"\n'
    assert (line in capsys.readouterr().err) == handler.startswith("dask:")


def test_a_handler_on_this_machine_is_another_in_a_container(tmp_path, capsys):
    """Of servers, too. It is said, since it fails only later, with every request."""
    source = tmp_path / "t.yaml"
    source.write_text(
        "clusters: [{id: a, servers: 1, handler: 'http://127.0.0.1:9/run'},"
        "{id: b, servers: 1, handler: 'http://10.0.0.7/run'},"
        "{id: c, servers: 1, handler: 'dask:localhost:8786:m:f'},"
        "{id: d, servers: [{id: s, handler: 'http:http://localhost/run'}, {id: t},"
        "{id: u, handler: 'dask:h:8786:m:f'}], handler: 'http:http://127.0.0.1:9/run'}]\n"
    )
    write(tmp_path / "compose.yaml", source, "--build", "..")
    told = capsys.readouterr().err
    for place, host in (
        ("clusters[0]", "127.0.0.1"), ("clusters[2]", "localhost"),
        ("clusters[3].servers[0]", "localhost"), ("clusters[3]", "127.0.0.1"),
    ):  # fmt: skip
        assert f"{place}.handler: {host} is the container itself there" in told
    assert "clusters[1]" not in told
    assert "clusters[3].servers[2]" not in told
    node = services_in(tmp_path / "compose.yaml")["node-a"]
    assert node["build"]["args"] == {"EXTRAS": "leases dask"}


def test_the_netem_overlay_delays_each_direction_of_each_link(tmp_path):
    """A container beside each node that may do just that, with the delays to its neighbors."""
    write(tmp_path / "compose.yaml", "ring5")
    services = yaml.safe_load((tmp_path / "compose.netem.yaml").read_text())["services"]
    beside = services["netem-a"]
    assert beside["command"] == ["node-b=35", "node-e=35"]
    assert beside["network_mode"] == "service:node-a"
    assert (beside["cap_drop"], beside["cap_add"]) == (["ALL"], ["NET_ADMIN"])
    (volume,) = services["node-a"]["volumes"]
    assert volume == "./topology/netem.yaml:/etc/spillover/topology.yaml:ro"


def test_paths_are_seen_from_the_compose_file(tmp_path):
    """The image is built from the checkout that the command runs from, wherever that is."""
    out = tmp_path / "deep" / "compose.yaml"
    write(out, "ring5")
    build = yaml.safe_load(out.read_text())["services"]["node-a"]["build"]
    assert (out.parent / build["context"] / build["dockerfile"]).is_file()
    assert os.path.relpath(build["context"]).startswith(".")
