"""A real Prometheus that scrapes real nodes and lease members under load, and the product's lists.

Nothing is asserted here. What is started is ended by its id.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from pathlib import Path

import httpx
import pytest
import yaml

import spillover.model.signals
from spillover.certificates.directory import CertificateDirectory
from spillover.inputs.api_tokens import dump_api_token, new_api_token
from spillover.model.signals.signal import Signal
from spillover.model.topology import Cluster, Link, Topology
from spillover.model.unlike_servers import Server
from spillover.testbed.supervisor import Testbed
from support import waiting
from support.api_tokens import HOLDERS, SECRETS
from support.queue_service import Producer

ROOT = Path(__file__).parents[2]
BOARDS = ROOT / "dashboards" / "grafana"
RULES = ROOT / "dashboards" / "alerts.yaml"

SCRAPE_S = 1.0
LIMIT_S = 30.0
until = partial(waiting.until, limit_s=LIMIT_S, every_s=0.1)
PORT_TRIES = 5


WITHOUT_PANEL: dict[str, str] = {}
"""Metrics of `model.signals` that no panel shows yet, and why. They are struck out once they have
data: see test_on_prometheus."""


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def without_panel():
    return WITHOUT_PANEL


@pytest.fixture(scope="session")
def boards():
    """The committed boards, by name."""
    return {file.stem: json.loads(file.read_text("utf-8")) for file in sorted(BOARDS.glob("*"))}


@pytest.fixture(scope="session")
def rules():
    """The alert rules, in order."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="session")
def product_signals():
    """Every signal of every list in `spillover.model.signals`, by name."""
    modules = [
        importlib.import_module(f"spillover.model.signals.{module.name}")
        for module in pkgutil.iter_modules(spillover.model.signals.__path__)
    ]
    values = [value for module in modules for value in vars(module).values()]
    return {value.name: value for value in values if isinstance(value, Signal)}


@pytest.fixture(scope="session")
def generate(require):
    """`generate(out, root=...)` runs the generator that lies in `root`."""
    require(importlib.util.find_spec("grafana_foundation_sdk"), "the group `dashboards`")

    def run(out, root=ROOT):
        command = [sys.executable, "-m", "dashboards", "--out", str(out)]
        subprocess.run(command, cwd=root, check=True, capture_output=True, timeout=LIMIT_S)

    return run


@pytest.fixture(scope="session")
def promtool(require):
    """`promtool(*arguments)` runs it: status, and all it said."""
    require(shutil.which("promtool"), "promtool on the PATH (Debian: apt install prometheus)")

    def run(*arguments):
        command = ["promtool", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture(name="until", scope="session")
def _until():
    return until


class Prometheus:
    """One server on loopback, with all it stores in `directory`. `jobs` has the addresses to scrape
    by job, nodes by what `ca_file` vouches for, with the API token whose secret is in `secret`;
    rules fire as soon as their expression holds."""

    def __init__(self, directory, jobs, ca_file, secret, free_port):
        rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule.pop("for", None)
        (directory / "alerts.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
        period = f"{int(SCRAPE_S * 1000)}ms"
        https = {"scheme": "https", "tls_config": {"ca_file": str(ca_file)}}
        https["authorization"] = {"credentials_file": str(secret)}
        config = {
            "global": {"scrape_interval": period, "evaluation_interval": period,
                       "scrape_timeout": period},
            "rule_files": ["alerts.yaml"],
            "scrape_configs": [
                {
                    "job_name": job,
                    "static_configs": [{"targets": list(targets)}],
                    **(https if job == "spillover" else {}),
                }
                for job, targets in jobs.items()
            ],
        }  # fmt: skip
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        self._directory = directory
        self._log = (directory / "log").open("wb")
        for _ in range(PORT_TRIES):
            self._start(free_port())
            if self._is_ready():
                return
        raise AssertionError((directory / "log").read_text(encoding="utf-8"))

    def _start(self, port):
        where = self._directory
        command = ["prometheus", f"--config.file={where}/prometheus.yml", "--log.level=warn"]
        command += [f"--storage.tsdb.path={where}/data", f"--web.listen-address=127.0.0.1:{port}"]
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=LIMIT_S
        )

    def _is_ready(self):
        def ready_or_gone():
            if self.process.poll() is not None:
                return True
            try:
                return self._client.get("/-/ready").status_code == 200
            except httpx.TransportError:
                return False

        until(ready_or_gone, what="Prometheus is ready")
        return self.process.poll() is None

    def get(self, path, **parameters):
        """The data of an answer; fails with Prometheus's own words if it has objections."""
        answer = self._client.get(f"/api/v1/{path}", params=parameters).json()
        assert answer["status"] == "success", (parameters, answer.get("error"))
        return answer["data"]

    def query(self, expr):
        """The series of an instant vector, now."""
        return self.get("query", query=expr)["result"]

    def number(self, expr):
        """The one value of an expression, None without one."""
        result = self.query(expr)
        return float(result[0]["value"][1]) if result else None

    def firing(self):
        """Names of the alerts that fire now."""
        return {one["metric"]["alertname"] for one in self.query('ALERTS{alertstate="firing"}')}

    def stop(self):
        self._client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(LIMIT_S)
        self._log.close()


CLUSTERS = ("a", "b", "c")
PARTITIONS = 6
LEASE_MS = {"normal-lease": 1000, "max-lease": 3000, "max-shutdown": 500, "min-grab": 200}
HANDLER = "def work(partition, epoch, stop_event):\n    stop_event.wait()\n"
SHARED = (
    f"sum(spillover_lease_held) == {PARTITIONS} and min(spillover_lease_held) == {PARTITIONS // 2}"
)
LOAD_PER_S = 45.0
"""On one cluster that works off 25 per second, beside two that have nothing to do."""


class World:
    """Three nodes with certificates and API tokens, two of which have pools of unlike servers; two
    lease members; load on the first node; and Prometheus."""

    def __init__(self, directory, redis_url, redis_servers, stack):
        self._directory = directory
        self._stack = stack
        self._redis = ("--redis", redis_url, "--group", redis_servers.new_name())
        (directory / "handler.py").write_text(HANDLER, encoding="utf-8")
        ports = {node: redis_servers.free_port() for node in ("n0", "n1")}
        self.n0 = self._member("n0", ports["n0"])
        self.testbed = self._nodes()
        addresses = [url.removeprefix("https://") for url in self.testbed.urls.values()]
        members = [f"127.0.0.1:{port}" for port in ports.values()]
        producers = self._producers([redis_servers.free_port() for _ in range(2)])
        jobs = {"spillover": addresses, "spillover-leases": members, "spillover-queue": producers}
        ca_file = self.testbed.certified.ca_file
        secret = directory / "prometheus.secret"
        secret.write_text(SECRETS["reader"], encoding="utf-8")
        self.prometheus = Prometheus(directory, jobs, ca_file, secret, redis_servers.free_port)
        stack.callback(self.prometheus.stop)
        ask = self.prometheus.number
        until(
            lambda: ask("sum(up)") == len(CLUSTERS) + 3, what="Prometheus reaches all that is there"
        )
        self._load()
        # Watched from its start, so that Prometheus sees partitions come to it.
        self.n1 = self._member("n1", ports["n1"])
        until(lambda: ask(SHARED), what="members share the partitions")
        until(
            lambda: (ask("sum(rate(spillover_requests_total[5s]))") or 0) > LOAD_PER_S / 2,
            what="load",
        )
        until(lambda: (ask("min(count_over_time(up[1m]))") or 0) > 10, what="some scrapes of all")

    def kill(self, cluster):
        self.testbed.nodes[cluster].process.kill()

    def _nodes(self):
        pool = (Server(id="s1", rate=1.5), Server(id="s2", rate=0.5))
        kinds = {"a": pool, "b": pool, "c": 2}
        clusters = tuple(Cluster(id=c, servers=kinds[c], service_ms=80.0) for c in CLUSTERS)
        links = tuple(Link(between=pair, delay_ms=5) for pair in combinations(CLUSTERS, 2))
        watched = Topology(name="watched", clusters=clusters, links=links, shadow="adaptive")
        tokens = self._directory / "tokens.yaml"
        made = [new_api_token(name, SECRETS[name], *rest) for name, *rest in HOLDERS]
        tokens.write_text("".join(map(dump_api_token, made)), encoding="utf-8")
        testbed = Testbed(watched, seed=1, certify=certify, tokens=[str(tokens)])
        runner = self._stack.enter_context(asyncio.Runner())
        runner.run(testbed.start())
        self._stack.callback(lambda: runner.run(testbed.stop(grace_s=1.0)))
        return testbed

    def _member(self, node, port):
        command = ["spillover", "lease", "run", *self._redis, "--node", node, "--seed", "1"]
        command += ["--partitions", str(PARTITIONS), "--handler", "python:handler:work"]
        command += ["--bind", f"127.0.0.1:{port}", "--held-delay-ms", "5"]
        for name, value_ms in LEASE_MS.items():
            command += [f"--{name}-ms", str(value_ms)]
        return self._run(node, command)

    def _producers(self, ports):
        """Two producers of the queue; each has an object, and others come and go."""
        addresses = [f"127.0.0.1:{port}" for port in ports]
        for number, address in enumerate(addresses):
            command = ["spillover", "queue", "--id", f"p{number}", "--bind", address]
            for other, peer in enumerate(addresses):
                command += ["--peer", f"p{other}=http://{peer}"]
            self._run(f"p{number}", command)
        for address in addresses:
            producer = Producer(f"http://{address}")
            until(lambda one=producer: _is_up(one), what="a producer")
            producer.put(b"an object")
        stop = threading.Event()
        busy = threading.Thread(target=_pass_objects, args=(producer, stop))
        busy.start()
        self._stack.callback(busy.join)
        self._stack.callback(stop.set)
        return addresses

    def _load(self):
        target = f"a={self.testbed.urls['a']}"
        command = ["spillover_loadgen", "run", "--target", target, "--workload", "poisson"]
        command += ["--rate", str(LOAD_PER_S), "--duration-s", "120", "--seed", "1"]
        ca_file, secret = str(self.testbed.certified.ca_file), SECRETS["submitter"]
        self._run("load", command, SPILLOVER_CA_FILE=ca_file, SPILLOVER_TOKEN=secret)

    def _run(self, name, command, **variables):
        log = self._stack.enter_context((self._directory / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=self._directory,
            stdout=log,
            stderr=log,
            env=os.environ | variables,
        )
        self._stack.callback(process.wait, LIMIT_S)
        self._stack.callback(process.kill)
        return process


def certify(directory, topology, cluster):
    """As `testbed.certified.Certify`."""
    CertificateDirectory(directory).complete(topology, datetime.now(UTC))
    return directory / cluster


def _pass_objects(producer, stop):
    """In and out again, until the end."""
    while not stop.wait(0.2):
        producer.put(b"another")
        given = producer.take(access={"p1": 1.0})
        producer.tell(given.headers["spillover-grant"], "ack")


def _is_up(producer):
    try:
        return bool(producer.state)
    except OSError:
        return False


@pytest.fixture(scope="module")
def world(require, redis_servers, redis_server, tmp_path_factory):
    """All of it, under load and settled."""
    require(shutil.which("prometheus"), "prometheus on the PATH (Debian: apt install prometheus)")
    with ExitStack() as stack:
        yield World(tmp_path_factory.mktemp("watched"), redis_server.url, redis_servers, stack)
