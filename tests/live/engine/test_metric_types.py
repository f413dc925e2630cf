"""Counters and histograms as Prometheus reads them."""

from prometheus_client.core import CollectorRegistry
from prometheus_client.exposition import generate_latest

from spillover.live.engine.metric_types import Counters, Histogram, counter, gauges
from spillover.model.signals.signal import Signal

COUNTED = Signal("t_requests_total", "counter", "How many.", labels=("kind", "end"))
TIMED = Signal("t_wait_seconds", "histogram", "How long.", buckets=(0.1, 0.5, 2.0))
SHOWN = Signal("t_length", "gauge", "How long it is.", labels=("of",))


def read(*metrics):
    """The samples of these, as lines; without help and types."""
    registry = CollectorRegistry(auto_describe=False)

    class Told:
        def collect(self):
            return iter(metrics)

    registry.register(Told())
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_counts_begin_at_nothing_for_all_that_there_can_be():
    counters = Counters(COUNTED, [("home", "done"), ("home", "failed")])
    counters.counts["home", "done"] += 3
    assert read(counters.collect("a")) == [
        't_requests_total{cluster="a",end="done",kind="home"} 3.0',
        't_requests_total{cluster="a",end="failed",kind="home"} 0.0',
    ]
    assert read(counters.collect("p", "producer"))[0].startswith(
        't_requests_total{end="done",kind="home",producer="p"}'
    )


def test_what_others_count_is_read_now():
    assert read(counter(COUNTED, "a", [(("home", "done"), 5)])) == [
        't_requests_total{cluster="a",end="done",kind="home"} 5.0'
    ]
    assert read(*gauges(SHOWN, "a", [(("queue",), 2), (("pool",), 0)])) == [
        't_length{cluster="a",of="queue"} 2.0',
        't_length{cluster="a",of="pool"} 0.0',
    ]


def test_a_histogram_counts_each_value_below_its_bound_and_at_it_and_in_all_above():
    histogram = Histogram(TIMED)
    for value in (0.0, 0.1, 0.25, 0.5, 0.625, 2.0, 2.5):
        histogram.observe(value)
    assert (histogram.count, histogram.total) == (7, 5.975)
    samples = read(histogram.collect("a"))
    assert samples[:4] == [
        't_wait_seconds_bucket{cluster="a",le="0.1"} 2.0',
        't_wait_seconds_bucket{cluster="a",le="0.5"} 4.0',
        't_wait_seconds_bucket{cluster="a",le="2.0"} 6.0',
        't_wait_seconds_bucket{cluster="a",le="+Inf"} 7.0',
    ]
    assert samples[4:] == [
        't_wait_seconds_count{cluster="a"} 7.0',
        't_wait_seconds_sum{cluster="a"} 5.975',
    ]
