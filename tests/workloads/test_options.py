"""What schedule the options describe, and where an option could have no effect."""

import argparse

import pytest

from spillover.model.errors import InputError
from spillover.model.schedule import Arrival
from spillover.workloads.generated import bursts
from spillover.workloads.options import add_schedule_options, read_schedule

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03,100,10
2023-11-16 18:17:04,200,20
2023-11-16 18:17:07,400,30
"""
PLAIN = "time_s,cluster,service_ms\n0.5,a,5\n2,b,6\n3.5,a,7\n"
DRAWN = ("--workload", "poisson", "--rate", "20", "--duration-s", "3")


def read(*words, clusters=("a", "b")):
    parser = argparse.ArgumentParser()
    add_schedule_options(parser)
    return read_schedule(parser.parse_args([str(word) for word in words]), list(clusters))


def refused(*words):
    with pytest.raises(InputError) as error:
        read(*words)
    return str(error.value)


@pytest.fixture
def trace(tmp_path):
    def write(content):
        path = tmp_path / "trace.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_bursts_are_those_of_the_seed_and_last_as_the_paper_has_it():
    """5 s for each cluster and 20 s more, unless a length is given."""
    assert read("--workload", "bursts") == (bursts(["a", "b"], duration_s=30, seed=1), 30.0)
    words = ("--workload", "bursts", "--duration-s", "4", "--seed", "6")
    assert read(*words) == (bursts(["a", "b"], duration_s=4, seed=6), 4.0)


def test_a_trace_lasts_until_its_last_request_or_as_long_as_is_said(trace):
    """What is due at the end of that time is left out."""
    path = trace(PLAIN)
    whole, length_s = read("--trace", path)
    assert [(one.time_s, one.cluster, one.service_ms) for one in whole] == [
        (0.5, "a", 5.0),
        (2.0, "b", 6.0),
        (3.5, "a", 7.0),
    ]
    assert length_s == 3.5
    assert read("--trace", path, "--duration-s", "2") == (whole[:1], 2.0)
    assert read("--trace", path, "--duration-s", "2.1") == (whole[:2], 2.1)
    assert read("--trace", path, "--duration-s", "60") == (whole, 60.0)


def test_tokens_of_an_azure_trace_weigh_as_is_said(trace):
    """A quarter of a millisecond and 30 of them, if nothing is said; clusters in turn."""
    path = trace(AZURE)
    schedule, length_s = read("--trace", path)
    assert schedule == [
        Arrival(0.0, "a", service_ms=325.0),
        Arrival(1.0, "b", service_ms=650.0),
        Arrival(4.0, "a", service_ms=1000.0),
    ]
    assert length_s == 4.0
    weights = ("--context-token-ms", "2", "--generated-token-ms", "0", "--assign", "b")
    schedule, _ = read("--trace", path, *weights)
    assert [(one.cluster, one.service_ms) for one in schedule] == [
        ("b", 200.0),
        ("b", 400.0),
        ("b", 800.0),
    ]
    schedule, _ = read("--trace", path, "--context-token-ms", "0", "--assign", "staggered")
    assert sorted(one.service_ms for one in schedule) == [300.0, 300.0, 600.0, 600.0, 900.0, 900.0]


@pytest.mark.parametrize(
    ("option", "value"),
    [("--context-token-ms", "1"), ("--generated-token-ms", "0"), ("--assign", "a")],
)
def test_an_option_of_azure_traces_is_refused_where_it_has_no_effect(option, value, trace):
    message = f"{option}: expected only with a trace in Azure's format"
    assert refused("--workload", "bursts", option, value) == message
    assert refused("--trace", trace(PLAIN), option, value) == message
    assert read("--trace", trace(AZURE), option, value)[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "line 1: expected a header line, got an empty file"),
        (b"\xff\xfe\n", "line 1: expected UTF-8 text"),
        (None, "expected a readable file: No such file or directory"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_of_it_and_not_of_an_option(
    content, words, trace, tmp_path
):
    path = tmp_path / "absent.csv" if content is None else trace(content)
    assert refused("--trace", path, "--assign", "a") == f"{path}: {words}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--workload", "bursts", "--rate", "5"), "--rate: expected only with --workload poisson"),
        (("--workload", "poisson"), "--duration-s: expected with --workload poisson, got none"),
        (
            ("--workload", "poisson", "--duration-s", "5"),
            "--rate: expected with --workload poisson, got none",
        ),
        ((*DRAWN, "--type", "..=1"), "--type: expected the name of a type, got '..'"),
        (
            (*DRAWN, "--type", "t1=1", "--type", "t2=1", "--type", "t1=2"),
            "--type: expected each type once, got 't1' twice",
        ),
    ],
)
def test_what_does_not_go_together_is_told(words, message):
    assert refused(*words) == message
