"""What each command takes, by hand: what holds where nothing is said, and what words make of it.
Options of services stand in services/docs/configuration.md, too, which is written from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from spillover.cli.commands import make_parser

URL = "http://h:1"


class Takes(NamedTuple):
    """A command: the words that it cannot do without, and what follows from them; further words,
    and what follows from these."""

    needs: str
    holds: dict[str, object]
    words: str
    becomes: dict[str, object]


ASKING = {"url": URL, "ca_file": None, "token_file": None, "json": False}
ASKED = "--json --token-file secret"
AS_ASKED = {"json": True, "token_file": "secret"}

MAKING = {"topology": None, "out": Path("certificates"), "days": 90, "json": False}
MADE = "--topology ring5 --out there --days 7 --json"
AS_MADE = {"topology": "ring5", "out": Path("there"), "days": 7, "json": True}
SERVICES = "--service p1 --service p2=h --name q --force"
OF_SERVICES = {"service": ["p1", "p2=h"], "name": "q", "force": True}
NO_SERVICES = {"service": [], "name": None, "force": False}

DEPLOYED = {"topology": "ring5", "image": "spillover:local", "cpus": 1.0, "memory_mb": 256} | dict(
    dict.fromkeys(("tls", "force", "json"), False)
)
DEPLOY = "--out there --image mine --cpus 0.5 --memory-mb 512 --tls --force --json"
AS_DEPLOYED = {"out": "there", "image": "mine", "cpus": 0.5, "memory_mb": 512} | dict.fromkeys(
    ("tls", "force", "json"), True
)

SYSTEM = (
    "--producers 1 --consumers 2 --production-rate 3 --consumption-rate 4 --message-time 0 "
    "--buffers 6 --max-hops 7"
)
AS_SYSTEM = {
    "producers": 1, "consumers": 2, "production_rate": 3.0, "consumption_rate": 4.0,
    "message_time": 0.0, "buffers": 6, "max_hops": 7, "fast_share": None, "fast_factor": None,
    "fast_access": None, "producers_per_consumer": None, "json": False, "seed": 1,
}  # fmt: skip
FAST = "--fast-share 0 --fast-factor 2 --fast-access 0.5 --producers-per-consumer 3 --seed 9"
AS_FAST = {
    "fast_share": 0.0, "fast_factor": 2.0, "fast_access": 0.5, "producers_per_consumer": 3,
    "seed": 9,
}  # fmt: skip

COMMANDS = {
    "demo": Takes(
        "",
        {
            "show": "bursts", "topology": "ring5", "policy": "paper", "seed": 1, "quick": False,
            "time_scale": 1.0, "report": Path("spillover-demo.html"), "json": False,
        },
        "streams --topology t --policy adaptive --seed 2 --quick --time-scale 2 --report r --json",
        {
            "show": "streams", "topology": "t", "policy": "adaptive", "seed": 2, "quick": True,
            "time_scale": 2.0, "report": Path("r"), "json": True,
        },
    ),
    "up": Takes(
        "",
        {
            "topology": "ring5", "policy": None, "shadow": None, "port": None, "seed": None,
            "queue": None, "store": None, "drain_timeout_s": 30.0, "results_timeout_s": 5.0,
            "no_restart": False, "json": False, "tls": False, "otel": False, "allow_origin": [],
            "tokens": [], "config_redis": None, "redis_url_file": None,
        },
        "t --policy paper --shadow adaptive --port 9 --seed 3 --queue 2 --store s --json --tls "
        "--drain-timeout-s 0 --results-timeout-s 0 --no-restart --otel --allow-origin * "
        "--tokens a --tokens b --config-redis --redis-url-file u",
        {
            "topology": "t", "policy": "paper", "shadow": "adaptive", "port": 9, "seed": 3,
            "queue": 2, "store": "s", "drain_timeout_s": 0.0, "results_timeout_s": 0.0,
            "no_restart": True, "json": True, "tls": True, "otel": True, "allow_origin": ["*"],
            "tokens": ["a", "b"], "config_redis": "", "redis_url_file": "u",
        },
    ),
    "node": Takes(
        "--topology t --cluster a",
        {
            "topology": "t", "cluster": "a", "bind": None, "peer_bind": None, "proxy_bind": None,
            "seed": None, "drain_timeout_s": 30.0, "results_timeout_s": 5.0, "log_format": "text",
            "log_requests": False, "otel": False, "testbed": False, "end_with_stdin": False,
            "config_from": "peers", "tls_cert": None, "tls_key": None, "tls_ca": None,
        },
        "--bind h:1 --peer-bind h:2 --proxy-bind h:3 --seed 4 --drain-timeout-s 0 --otel "
        "--results-timeout-s 0 --log-format json --log-requests --testbed --end-with-stdin "
        "--config-from operators --tls-cert c --tls-key k --tls-ca ca",
        {
            "bind": ("h", 1), "peer_bind": ("h", 2), "proxy_bind": ("h", 3), "seed": 4,
            "drain_timeout_s": 0.0, "results_timeout_s": 0.0, "log_format": "json", "otel": True,
            "log_requests": True, "testbed": True, "end_with_stdin": True,
            "config_from": "operators", "tls_cert": "c", "tls_key": "k", "tls_ca": "ca",
        },
    ),
    "status": Takes(URL, ASKING, ASKED, AS_ASKED),
    "resume": Takes(URL, ASKING, ASKED, AS_ASKED),
    "drain": Takes(
        URL,
        ASKING | {"no_wait": False, "timeout_s": 60.0},
        f"{ASKED} --no-wait --timeout-s 0.5",
        AS_ASKED | {"no_wait": True, "timeout_s": 0.5},
    ),
    "config get": Takes(URL, ASKING, ASKED, AS_ASKED),
    "config set": Takes(
        f"{URL} f", ASKING | {"file": "f", "if_version": None}, f"{ASKED} --if-version 0",
        AS_ASKED | {"if_version": 0},
    ),
    "config diff": Takes(f"{URL} f", ASKING | {"file": "f"}, ASKED, AS_ASKED),
    "explain": Takes(f"{URL} x", ASKING | {"id": "x"}, ASKED, AS_ASKED),
    "tokens": Takes(
        URL,
        ASKING | {"limit": [], "out": [], "back": []},
        f"{ASKED} --limit c=3 --limit d=1 --out s1 --out s2 --in s3 --in s4",
        AS_ASKED | {"limit": [("c", 3), ("d", 1)], "out": ["s1", "s2"], "back": ["s3", "s4"]},
    ),
    "token new": Takes(
        "--name n --role read",
        {"name": "n", "role": ["read"], "tenant": "", "append": None, "json": False},
        "--role submit --role operate --tenant t --append f --json",
        {"role": ["read", "submit", "operate"], "tenant": "t", "append": "f", "json": True},
    ),
    "tls init": Takes("", MAKING | NO_SERVICES, f"{MADE} {SERVICES}", AS_MADE | OF_SERVICES),
    "tls add": Takes(
        "",
        MAKING | NO_SERVICES | {"cluster": None},
        f"{MADE} {SERVICES} --cluster a",
        AS_MADE | OF_SERVICES | {"cluster": "a"},
    ),
    "tls renew": Takes(
        "",
        MAKING | {"cluster": None, "ca": False, "drop_old_ca": False},
        f"{MADE} --cluster a --cluster b --ca",
        AS_MADE | {"cluster": ["a", "b"], "ca": True, "drop_old_ca": False},
    ),
    "tls check": Takes(
        "w",
        {
            "what": "w", "topology": None, "cluster": None, "key": None, "ca_file": None,
            "days_left": 14, "json": False,
        },
        "--topology t --cluster a --key k --ca-file ca --days-left 0 --json",
        {"topology": "t", "cluster": "a", "key": "k", "ca_file": "ca", "days_left": 0}
        | {"json": True},
    ),
    "topology compose": Takes(
        "ring5",
        DEPLOYED | {"out": "compose.yaml", "first_port": 8101, "build": None, "code": None},
        f"{DEPLOY} --first-port 9000 --build b --code c",
        AS_DEPLOYED | {"first_port": 9000, "build": "b", "code": "c"},
    ),
    "topology kubernetes": Takes(
        "ring5",
        DEPLOYED | {"out": "kubernetes", "queue": 0, "tokens": False},
        f"{DEPLOY} --queue 3 --tokens",
        AS_DEPLOYED | {"queue": 3, "tokens": True},
    ),
    "lease run": Takes(
        "--group g --node n --partitions 4 --handler h",
        {
            "group": "g", "node": "n", "partitions": 4, "handler": "h", "redis": None,
            "bind": ("127.0.0.1", 0), "tls_cert": None, "tls_key": None, "tokens": [],
            "rule": "guarded", "balance": "count", "max_progress_ms": None, "seed": None,
            "log_format": "text", "normal_lease_ms": 60_000.0, "max_lease_ms": 180_000.0,
            "max_shutdown_ms": 10_000.0, "min_grab_ms": 5_000.0, "held_delay_ms": 100.0,
        },
        "--redis r --bind off --tls-cert c --tls-key k --tokens f --rule blog --balance load "
        "--max-progress-ms 1 --seed 2 --log-format json --normal-lease-ms 3 --max-lease-ms 4 "
        "--max-shutdown-ms 5 --min-grab-ms 6 --held-delay-ms 7",
        {
            "redis": "r", "bind": None, "tls_cert": "c", "tls_key": "k", "tokens": ["f"],
            "rule": "blog", "balance": "load", "max_progress_ms": 1.0, "seed": 2,
            "log_format": "json", "normal_lease_ms": 3.0, "max_lease_ms": 4.0,
            "max_shutdown_ms": 5.0, "min_grab_ms": 6.0, "held_delay_ms": 7.0,
        },
    ),
    "lease demo": Takes(
        "",
        {
            "records": None, "streams": None, "members": 4, "max_lease_ms": None, "quick": False,
            "redis": None, "redis_url_file": None, "keep": False, "seed": 1, "limit_s": 300.0,
            "out": Path("spillover-leases.html"), "json": False,
        },
        "--records 1 --streams 2 --members 3 --max-lease-ms 4 --quick --redis --redis-url-file f "
        "--keep --seed 5 --limit-s 6 --out o --json",
        {
            "records": 1, "streams": 2, "members": 3, "max_lease_ms": 4.0, "quick": True,
            "redis": "", "redis_url_file": "f", "keep": True, "seed": 5, "limit_s": 6.0,
            "out": Path("o"), "json": True,
        },
    ),
    "queue work": Takes(
        f"--handler h --producer {URL}",
        {
            "handler": "h", "producer": [URL], "at_once": 1, "workers": "thread",
            "deadline_ms": 3_600_000.0, "max_hops": 3, "access": "learned",
            "drain_timeout_s": 30.0, "json": False, "log_format": "text", "token_file": None,
            "ca_file": None,
        },
        "--producer two --at-once 2 --workers process --deadline-ms 5 --max-hops 1 "
        f"--access uniform --drain-timeout-s 0 --log-format json {ASKED}",
        AS_ASKED | {
            "producer": [URL, "two"], "at_once": 2, "workers": "process", "deadline_ms": 5.0,
            "max_hops": 1, "access": "uniform", "drain_timeout_s": 0.0, "log_format": "json",
        },
    ),
    "sim overflow": Takes(
        "--topology t --trace x",
        {
            "topology": "t", "policy": None, "compare": None, "shadow": None, "engine": "full",
            "faults": None, "no_keys": False, "plot": None, "json": False,
        },
        "--policy shared --compare paper,shared --shadow adaptive --engine fast --faults f "
        "--no-keys --plot p.png --json",
        {
            "policy": "shared", "compare": ["paper", "shared"], "shadow": "adaptive",
            "engine": "fast", "faults": "f", "no_keys": True, "plot": "p.png", "json": True,
        },
    ),
    "sim tokens": Takes(
        "--pool p --jobs 4",
        {
            "pool": "p", "jobs": 4, "load": None, "policy": "dynamic", "discipline": "ps",
            "order": "longest-available", "sizes": "exp", "interruptions": None, "seed": 1,
            "json": False,
        },
        "--load 0.5 --policy static-best --discipline fcfs --sizes det --interruptions 0 --seed 2 "
        "--order least-loaded --json",
        {
            "load": 0.5, "policy": "static-best", "discipline": "fcfs", "sizes": "det",
            "interruptions": 0.0, "seed": 2, "order": "least-loaded", "json": True,
        },
    ),
    "sim probing": Takes(
        SYSTEM,
        AS_SYSTEM | {"objects": 100_000, "avoid_visited": False, "engine": "fast"},
        f"{FAST} --objects 9 --avoid-visited --engine full --json",
        AS_FAST | {"objects": 9, "avoid_visited": True, "engine": "full", "json": True},
    ),
    "sim rebalance": Takes(
        "--clients 5 --servers a,b --then a",
        {
            "clients": 5, "servers": ["a", "b"], "then": [["a"]], "rule": "probabilistic",
            "virtual_nodes": None, "start": None, "skip": 0.0, "seed": 1, "json": False,
        },
        "--then b,c --rule stratified --virtual-nodes 2 --start uneven --skip 0.5 --seed 3 --json",
        {
            "then": [["a"], ["b", "c"]], "rule": "stratified", "virtual_nodes": 2,
            "start": "uneven", "skip": 0.5, "seed": 3, "json": True,
        },
    ),
    "sim leases": Takes(
        "--nodes 1 --partitions 2 --periods 3",
        {
            "nodes": 1, "partitions": 2, "periods": 3, "rule": "guarded", "start": "balanced",
            "balance": "count", "loads": None, "load_noise": None, "stall": [], "crash": [],
            "join": [], "message_loss": 0.0, "handler_stop_ms": 1_000.0, "challenges": None,
            "waits": None, "normal_lease_ms": 60_000.0, "seed": 1, "json": False,
        },
        "--rule blog --start empty --balance load --loads 1,0 --load-noise 1 --stall n0:1 "
        "--stall n1:2 --crash n0:3 --join n0:4 --message-loss 1 --handler-stop-ms 0 "
        "--challenges one --waits halves --normal-lease-ms 5 --seed 6 --json",
        {
            "rule": "blog", "start": "empty", "balance": "load", "loads": [1.0, 0.0],
            "load_noise": 1.0, "stall": [("n0", 1.0), ("n1", 2.0)], "crash": [("n0", 3.0)],
            "join": [("n0", 4.0)], "message_loss": 1.0, "handler_stop_ms": 0.0,
            "challenges": "one", "waits": "halves", "normal_lease_ms": 5.0, "seed": 6,
            "json": True,
        },
    ),
    "plan": Takes(
        "--topology t --p99-ms 5 --trace x",
        {"topology": "t", "p99_ms": 5.0, "policy": None, "json": False},
        "--policy adaptive --json",
        {"policy": "adaptive", "json": True},
    ),
    "plan tokens": Takes(
        "--pool p",
        {
            "pool": "p", "url": None, "for_s": None, "load": None, "blocking": None,
            "slowdown": None, "time_ms": None, "at_most": 32, "plot": None, "json": False,
        },
        "--for-s 1 --load 0.5 --blocking 0.1 --at-most 9 --plot p.png --json",
        {
            "for_s": 1.0, "load": 0.5, "blocking": 0.1, "at_most": 9, "plot": "p.png", "json": True,
        },
    ),
    "exact tokens": Takes(
        "--pool p",
        {"pool": "p", "load": None, "policy": "dynamic", "seed": 1, "json": False},
        "--load 0.5 --policy ideal --seed 2 --json",
        {"load": 0.5, "policy": "ideal", "seed": 2, "json": True},
    ),
    "exact probing": Takes(SYSTEM, AS_SYSTEM, f"{FAST} --json", AS_FAST | {"json": True}),
    "reproduce": Takes(
        "--out d",
        {
            "names": [], "out": Path("d"), "full": False, "seed": 1, "jobs": 2, "fresh": False,
            "json": False,
        },
        "--full --seed 2 --jobs 3 --fresh --json comte johnson-2",
        {
            "full": True, "seed": 2, "jobs": 3, "fresh": True, "json": True,
            "names": ["comte", "johnson-2"],
        },
    ),
    "bench": Takes(
        "node",
        {
            "name": "node", "seed": 1, "runs": None, "case": "", "quick": False, "policy": None,
            "duration_s": None, "replicas": None, "report": None, "json": False,
        },
        "--seed 2 --runs 3 --case c --quick --policy paper --duration-s 4 --replicas 5 --report r "
        "--json",
        {
            "seed": 2, "runs": 3, "case": "c", "quick": True, "policy": ["paper"],
            "duration_s": 4, "replicas": 5, "report": Path("r"), "json": True,
        },
    ),
}  # fmt: skip


def read(words):
    """What the command would have, by name."""
    return vars(make_parser(*words[:2]).parse_args(words))


def words_of(command, more=""):
    """What has to be typed at least, and more."""
    return [*command.split(), *COMMANDS[command].needs.split(), *more.split()]
