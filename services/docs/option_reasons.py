"""Why each option of a command has its default, or may be left out. The options themselves, with
what they mean, are declared in `spillover/cli`; this is all that a parser has no place for.

A key is an option, or a command and an option where commands differ. A test asks for a reason for
each option that is not required, and refuses reasons for options that are not there.
"""

from __future__ import annotations

REASONS = {
    "node --bind": "The address that clients are given is mostly the one to listen at. In a "
    "container it is not: there the node listens on all addresses of its own network.",
    "--proxy-bind": "The topology says where, for clients and for all nodes alike.",
    "--peer-bind": "One port is enough while clients and neighbors share a network.",
    "node --node": "Most clusters have one node.",
    "node --processes": "One process is enough for most sites, and uses one core. Several use "
    "several, and go on when one dies.",
    "--tls-cert": "Nodes of one network that nobody else is in need none, and a test of the rule "
    "should not begin with a CA. Give certificates, and https urls, where sites are apart.",
    "--tls-key": "As `--tls-cert`.",
    "--tls-ca": "As `--tls-cert`. The system's CAs would vouch for anybody.",
    "--seed": "Random choices differ from node to node and from start to start, so that nodes do "
    "not act in step. A seed is for tests and measurements.",
    "--drain-timeout-s": "It is the grace that Kubernetes gives a pod by default. Set it to what "
    "your longest request takes, and give the process manager a few seconds more.",
    "--lame-duck-s": "A balancer sends clients on until it knows better: HAProxy's usual check "
    "finds out within 6 s, Kubernetes takes a pod off its services within some seconds. Set it "
    "above what yours needs. SIGINT leaves it out: whoever presses Ctrl-C does not want to wait.",
    "--results-timeout-s": "Clients that wait fetch their results within a moment. Those that come "
    "back after minutes must not hold up the end for so long.",
    "--allow-origin": "Any page that somebody's browser shows could otherwise make a node in their "
    "network work.",
    "--tokens": "On one's own machine nobody needs to say who they are. Elsewhere a node without "
    "them warns when it starts.",
    "--log-format": "A person reads the first logs. Choose `json` where logs are collected.",
    "--log-requests": "A line for each request costs more than the request itself on a busy node. "
    "`/explain` tells about single requests without it.",
    "--config-redis": "Nodes need no Redis, and tell each other what counts. Of two changes made "
    "at once one is lost then, and says so; with Redis it is refused.",
    "--config-from": "A change that is set once should count everywhere, above all at three in the "
    "morning. Sites of several owners may not want to trust each other so far.",
    "--redis-url-file": "The environment says it, or the option. A file is for secrets that are "
    "mounted, and stays out of `ps` and of what processes inherit.",
    "--testbed": "Nobody should cut a link in production by a call.",
    "--end-with-stdin": "Process managers start nodes with standard input closed, and a node must "
    "not end by that. `spillover up` sets it, so that no node outlives it.",
    "up TOPOLOGY": "It shows the paper's federation without a file.",
    "up --port": "The examples use these ports. They are seldom taken.",
    "up --no-restart": "A testbed should stay whole while one looks at other things. Tests of what "
    "neighbors do without a node leave it down.",
    "--otel": "Traces need a collector, and a package.",
    "up --tls": "A look at a testbed of one machine needs no certificates, and no package for "
    "them.",
    "up --queue": "A testbed is of clusters unless you ask for producers.",
    "--store": "Nothing is left behind on the disk by a look. Give a directory where objects must "
    "outlive the process.",
    "--token-file": "Without API tokens nobody asks for one. The environment says it, too, and is "
    "no more shown to others than a file.",
    "queue --id": "`spillover queue work`, which is no producer, needs none.",
    "queue --bind": "Several producers may run on one machine. The first line on standard output "
    "tells which port was taken.",
    "queue --peer": "A producer alone is a queue, too.",
    "queue --url": "Where it listens is mostly where it is reached. In a container it is not.",
    "--buffers": "The paper's figures show that few places suffice where consumers ask producers "
    "as often as they produce.",
    "--object-limit-bytes": "An object is read into memory before it is stored. What is larger "
    "belongs in a store of files, and its name in the queue.",
    "--held-limit-bytes": "As of a node: the rest is for the process itself, and for copies.",
    "--visibility-ms": "Clients extend it while a handler works: it covers their silence, not the "
    "longest handler.",
    "--probe-expiry-ms": "It bounds how long a consumer waits beside an object elsewhere, and "
    "costs a round of small messages for each one that waits.",
    "--deliveries-max": "Consumers die of other things too. What has failed ten of them will fail "
    "the next.",
    "--retry-ms": "What fails at once would be dead in moments. A second is long for a hiccup, and "
    "short for whoever waits.",
    "--retry-max-ms": "Ten deliveries last four minutes by it: a restart of what handlers need, "
    "not an outage.",
    "--shadow": "It costs processor time, and is of use only to somebody who thinks of another "
    "policy.",
    "--policy": "The topology names the policy. The option compares policies on one file.",
    "--json": "People read tables, programs ask for JSON.",
    "--redis": "All members of a group share one Redis. The environment that starts them knows it, "
    "and keeps its password from other users of the machine.",
    "lease run --bind": "Several members may run on one machine, so that no fixed port is free for "
    "all. The first line on standard output tells which port was taken.",
    "--rule": "It is the rule that fences off members that are late. The other one is for "
    "comparison only.",
    "--balance": "Counts need nothing from the handlers. Loads even out better where partitions "
    "differ, if handlers report them.",
    "--max-progress-ms": "Only you know how long a handler may go without progress.",
    "lease run --json": "A member prints JSON lines in any case.",
}
