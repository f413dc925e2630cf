"""What a node counts of itself, read where its server reads it."""

from __future__ import annotations


def told_by(node, kind):
    """The samples of this node's metrics of one kind. Labels are in the order of their names, the
    cluster left out."""
    told = {}
    for family in node.shell.metrics.registry.collect():
        if family.type != kind or not family.name.startswith("spillover_"):
            continue
        for sample in family.samples:
            labels = sorted(sample.labels.items())
            values = (value for name, value in labels if name != "cluster")
            told[(sample.name.removeprefix("spillover_"), *values)] = sample.value
    return told


def counts(node):
    """Of what only grows, and has."""
    return {key: value for key, value in told_by(node, "counter").items() if value}


def test_all_that_is_counted_is_there_before_anything_has_happened(nodes):
    """At zero: else rates would miss what happens first. Of each neighbor the same."""

    async def main():
        async with nodes.Federation(nodes.topology_of("a", "b", "c")) as federation:
            told = told_by(federation["b"], "counter")
            assert set(told.values()) == {0}
            for end in ("done", "failed", "rejected", "expired", "cancelled", "unknown", "refused"):
                assert ("requests_total", end) in told
                assert all(("received_total", one, end) in told for one in "ac")
            for end in ("answered", "refused", "lost", "recalled"):
                assert all(("forwards_total", one, end) in told for one in "ac")
            for way in ("push", "pull"):
                assert all(("handed_total", way, one) in told for one in "ac")

    nodes.run(main)


def test_each_request_is_counted_once_where_it_ends_and_where_it_went(nodes):
    """One is done here, one at the neighbor, and one finds no place at either."""

    async def main():
        clusters = {"a": {"queue_limit": 0}, "b": {"queue_limit": 0}}
        topology = nodes.topology_of("a", "b", clusters=clusters)
        async with nodes.Federation(topology) as federation:
            a, b = federation["a"], federation["b"]
            await nodes.until(lambda: all(a.machine.neighbors.accepting))
            sent = []
            for node in (a, b):
                sent.append(a.post({"service_ms": 300}))
                await nodes.until(lambda node=node: node.machine.servers.busy == 1)
            assert told_by(a, "gauge")["servers_busy",] == 1
            assert told_by(b, "gauge")["ledger", "running", "foreign"] == 1
            assert (await a.post({"service_ms": 1})).status == 429
            for answer in sent:
                assert (await answer).status == 200
            told = counts(a)
            ends = {key[1:]: count for key, count in told.items() if key[0] == "requests_total"}
            assert ends == {("done",): 2, ("refused",): 1}
            assert told["refusals_total", "queue_full"] == 1
            # The third may have been sent there, too, and refused.
            refused = told.get(("forwards_total", "b", "refused"), 0)
            assert told["handed_total", "push", "b"] == 1 + refused
            assert told["forwards_total", "b", "answered"] == 1
            assert counts(b)["received_total", "a", "done"] == 1
            assert told_by(a, "gauge")["ledger", "done", "home"] == 2

    nodes.run(main)
