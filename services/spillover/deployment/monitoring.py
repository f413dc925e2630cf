"""The configurations of Prometheus and Grafana in a compose project. The dashboards and the alert
rules themselves are in dashboards/ of the checkout.
"""

from __future__ import annotations

from spillover.deployment.containers import API_PORT, heading, nodes_of
from spillover.deployment.ports import (
    DOORS,
    LEASE_MEMBERS,
    PRODUCERS,
    lease_name,
    producer_name,
)
from spillover.model.topology import Topology

SCRAPE_INTERVAL_S = 2
"""Bursts of the testbed last two seconds."""

PROMETHEUS_CA_PATH = "/etc/prometheus/ca.crt"

GRAFANA_FILES = {
    "grafana/datasources.yaml": f"""\
apiVersion: 1
datasources:
  - name: Prometheus
    uid: prometheus
    type: prometheus
    access: proxy
    url: http://prometheus:9090
    isDefault: true
    jsonData: {{timeInterval: {SCRAPE_INTERVAL_S}s}}
""",
    "grafana/dashboards.yaml": """\
apiVersion: 1
providers:
  - name: spillover
    type: file
    disableDeletion: true
    options: {path: /var/lib/grafana/dashboards}
""",
}
"""The files of Grafana by their paths beside the compose file."""


def prometheus_text(kind: str, topology: Topology, *, has_rules: bool, tls: bool) -> str:
    """Returns Prometheus's configuration; `has_rules` if the alert rules lie beside it."""
    nodes = [f"node-{node.label}:{API_PORT}" for node in nodes_of(*topology.clusters)]
    members = [lease_name(number) for number in range(1, LEASE_MEMBERS + 1)]
    producers = [producer_name(number) for number in range(1, PRODUCERS + 1)]
    doors = [f"door-{number}" for number in range(1, DOORS + 1)]
    secure = (
        f"    scheme: https\n    tls_config: {{ca_file: {PROMETHEUS_CA_PATH}}}\n" if tls else ""
    )
    # Certificates are for names, and not for the addresses that these have.
    address = f'target_label: __address__, replacement: "$1:{API_PORT}"'
    by_name = f"      - {{source_labels: [__meta_dns_name], {address}}}\n" if tls else ""
    rules = "rule_files: [/etc/prometheus/alerts.yaml]\n" if has_rules else ""
    return f"""\
{heading(kind, topology)}\
global: {{scrape_interval: {SCRAPE_INTERVAL_S}s, evaluation_interval: {SCRAPE_INTERVAL_S}s}}
{rules}\
scrape_configs:
  - job_name: spillover
{secure}\
    static_configs:
      - targets: {_listed(nodes)}
  # By name, since those of a profile that is not up are not down but not there.
{_by_name("leases", members, secure, by_name)}\
{_by_name("queue", producers, secure, by_name)}\
{_by_name("doors", doors)}\
"""


def _by_name(job: str, hosts: list[str], secure: str = "", relabeled: str = "") -> str:
    return f"""\
  - job_name: spillover-{job}
{secure}\
    dns_sd_configs:
      - {{names: {_listed(hosts)}, type: A, port: {API_PORT}, refresh_interval: 5s}}
    relabel_configs:
      - {{source_labels: [__meta_dns_name], target_label: instance}}
{relabeled}\
"""


def _listed(targets: list[str]) -> str:
    return "[" + ", ".join(f'"{target}"' for target in targets) + "]"
