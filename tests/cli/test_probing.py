"""`spillover exact probing` and `sim probing` as a user meets them: the object of `--json`, the
seed, tables, and one line for what makes no sense."""

import json

import pytest

from spillover.sim.queue.system import ProbingSystem, fast_and_slow
from spillover_lab.theory.chain import solve

NAMES = [
    "probes_mean",
    "wait_mean",
    "empty_probability",
    "producer_utilization",
    "consumer_utilization",
    "throughput",
]
OPTIONS = {
    "--producers": "100",
    "--consumers": "150",
    "--production-rate": "0.01",
    "--consumption-rate": "0.01",
    "--message-time": "1",
    "--buffers": "5",
    "--max-hops": "3",
}


def line(model, **changes):
    """A command line with the options of the document, some replaced or added."""
    options = {**OPTIONS, **{f"--{name.replace('_', '-')}": v for name, v in changes.items()}}
    return [model, "probing", *(part for pair in options.items() for part in pair)]


@pytest.fixture
def found(told):
    """The one object that a command gives."""

    def run(*words):
        status, out, err = told(*words, "--json")
        assert (status, out.count("\n"), err) == (0, 1, "")
        return json.loads(out)

    return run


def test_exact_gives_the_figures_of_the_contract(found):
    """Those of the model, kinds of producers included."""
    figures = found(*line("exact"))
    assert list(figures) == NAMES
    assert figures["wait_mean"] == pytest.approx(51.54, abs=0.01)
    made = found(
        *line("exact", fast_share="0.1", fast_factor="9", fast_access="0.5"), "--seed", "2"
    )
    system = ProbingSystem(
        kinds=fast_and_slow(100, 0.01, share=0.1, factor=9.0, access=0.5),
        consumers=150,
        consumption_rate=0.01,
        message_time=1.0,
        buffers=5,
        max_hops=3,
    )
    assert made == solve(system).as_dict()
    assert found(*line("exact", producers_per_consumer="7")) != figures


@pytest.mark.parametrize("model", ["exact", "sim"])
def test_what_makes_no_sense_gets_one_line(model, refused):
    said = refused(*line(model, max_hops="0"))
    assert said.startswith("--max-hops: expected a whole number of 1 to 1000000, got 0")


SHARE = {"fast_share": "0.5", "fast_factor": "2"}
SENSELESS = [
    ({"max_hops": "9" * 30}, "--max-hops: expected a whole number of 1 to 1000000, got 999"),
    ({"producers": "0"}, "--producers: expected a whole number of 1 to 1000000, got 0"),
    ({"consumers": "-4"}, "--consumers: expected a whole number of 1 to 1000000, got -4"),
    ({"buffers": "0"}, "--buffers: expected a whole number of 1 to 1000000, got 0"),
    ({"production_rate": "0"}, "usage: --production-rate: expected a number above 0, got '0'"),
    ({"consumption_rate": "1e300"}, "--consumption-rate: expected a number of 1e-12 to 1e+12"),
    ({"message_time": "-1"}, "usage: --message-time: expected a number of at least 0"),
    ({"producers_per_consumer": "101"}, "--producers-per-consumer: expected 1 to 100, the number"),
    ({"fast_factor": "2"}, "--fast-factor: expected along with --fast-share"),
    ({"fast_access": "0.2"}, "--fast-access: expected along with --fast-share"),
    ({"fast_share": "0.5"}, "--fast-factor: expected along with --fast-share"),
    (SHARE | {"fast_share": "1"}, "--fast-share: expected a share that leaves fast and slow ones"),
    (SHARE | {"fast_access": "1.1"}, "--fast-access: expected a share of 0 to 1, got 1.1"),
    (SHARE | {"producers_per_consumer": "5"}, "--producers-per-consumer: expected only where all"),
]


@pytest.mark.parametrize(("changes", "complaint"), SENSELESS)
def test_a_system_that_cannot_be_is_told(changes, complaint, refused):
    assert refused(*line("exact", **changes)).startswith(complaint)
