"""The metrics of several nodes on one page."""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from spillover.apps.node.one_face import OfNode, merged


def page_of(node, **values):
    """Returns the page of one node, with a gauge for each value and a counter."""
    own, shown = CollectorRegistry(), CollectorRegistry()
    for name, value in values.items():
        Gauge(name, "Words.", ["cluster"], registry=own).labels("a").set(value)
    Counter("ended", "More words.", registry=own).inc(node)
    shown.register(OfNode(own, node))
    return generate_latest(shown)


def test_the_samples_of_a_family_stand_together():
    page = merged([page_of(1, waiting=3), page_of(2, waiting=4, late=5)]).decode()
    families = {one.name: one for one in text_string_to_metric_families(page)}
    waiting = [(one.labels, one.value) for one in families["waiting"].samples]
    assert waiting == [({"cluster": "a", "node": "1"}, 3.0), ({"cluster": "a", "node": "2"}, 4.0)]
    assert [one.value for one in families["late"].samples] == [5.0]
    ended = [one.value for one in families["ended"].samples if one.name == "ended_total"]
    assert ended == [1.0, 2.0]
    heads = [line for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))
