"""`spillover sim overflow` and `spillover plan` as their users call them."""

import json
import re
from types import SimpleNamespace

import pytest

POISSON = ("--workload", "poisson", "--rate", "60", "--duration-s", "3")
SIM = ("sim", "overflow", "--topology", "ring5", *POISSON)


@pytest.fixture
def run(told):
    """`run(*words)`: the command's exit status, and what it wrote."""

    def run_it(*words):
        status, out, err = told(*words)
        return SimpleNamespace(status=status, out=out, err=err)

    return run_it


@pytest.mark.slow
def test_policies_are_compared_on_the_same_requests(run, numba):
    """Both engines say the same, policy by policy; `shared` is the best there can be."""
    answers = []
    for engine in ("full", "fast"):
        policies = "shared,isolated,paper"
        done = run(*SIM, "--rate", "115", "--compare", policies, "--engine", engine, "--json")
        assert done.status == 0
        answers.append(json.loads(done.out))
    full, fast = answers
    assert list(full["policies"]) == ["shared", "isolated", "paper"]
    assert [(one["engine"], one["topology"]) for one in answers] == [
        *(("full", "ring5"), ("fast", "ring5")),
    ]
    for policy, one in full["policies"].items():
        other = fast["policies"][policy]
        assert one["policy"] == other["policy"] == policy
        assert one["system_time_ms"] == pytest.approx(other["system_time_ms"])
        assert one["hops"] == other["hops"]
        assert one["requests"] == full["requests"] == fast["requests"]
    means = {p: one["system_time_ms"]["mean"] for p, one in full["policies"].items()}
    assert means["shared"] <= means["paper"] <= means["isolated"]


@pytest.mark.slow
def test_a_site_that_dies(run, tmp_path):
    """What was at work there is done again elsewhere; who comes there finds nobody."""
    faults = tmp_path / "dies.yaml"
    faults.write_text("faults:\n  - {at_s: 1, action: crash, cluster: c}\n")
    done = run(*SIM, "--faults", str(faults), "--json")
    result = json.loads(done.out)
    words = " ".join(run(*SIM, "--faults", str(faults)).err.split())
    others = words.partition("not done (")[2].partition(")")[0]
    assert f"unreachable: {result['outcomes']['unreachable']}" in others
    assert "done" not in others
    short = ("--duration-s", "1.3", "--faults", str(faults))
    unknown = [
        json.loads(run(*SIM, "--rate", "115", *short, *more, "--json").out)
        for more in ((), ("--no-keys",))
    ]
    with_keys, without = (told["outcomes"]["unknown"] for told in unknown)
    assert with_keys < without, "what has no key is not done again"


COMTE11 = ("sim", "overflow", "--topology", "comte11", "--workload", "poisson", "--rate", "9")
TYPED = (*COMTE11, "--duration-s", "40", "--type", "t1=1", "--type", "t2=4")


def test_unlike_servers_and_what_becomes_of_each_type(run):
    """Figure 11's pool, overloaded: type 2 is blocked more often; all is by type, and adds up."""
    done = run(*TYPED, "--json")
    assert done.status == 0
    result = json.loads(done.out)
    types = result["per_type"]
    assert list(types) == ["t1", "t2"]
    assert sum(told["requests"] for told in types.values()) == result["requests"]
    assert 0.0 <= types["t1"]["blocked"] < 0.2 < types["t2"]["blocked"] < 0.6
    for told in types.values():
        assert told["blocked"] == told["outcomes"].get("refused", 0) / told["requests"]
        assert told["system_time_ms"]["min"] >= 999.0
        assert told["queued_ms"]["max"] == 0.0
    shown = run(*TYPED, "--compare", "isolated,shared").err
    assert re.search(r"shared, t2 +. +\d+ . +0\.\d{4} ", shown)


def test_unlike_servers_that_go_wrong(run, tmp_path):
    """One is down for good and one fails: both types are served by the others."""
    faults = tmp_path / "pool.yaml"
    faults.write_text(
        "faults:\n  - {at_s: 5, action: down, cluster: a, server: s1}\n"
        "  - {at_s: 6, action: failing, cluster: a, server: s6, share: 1}\n"
        "  - {at_s: 9, action: tokens, cluster: a, classes: {c3: 1}, servers: {s4: out}}\n"
    )
    done = run(*TYPED, "--faults", str(faults), "--json")
    assert done.status == 0
    result = json.loads(done.out)
    assert result["faults"] == 3
    assert result["outcomes"]["done"] > 100
    assert 0 < result["outcomes"]["failed"] < 30
    assert all(told["outcomes"]["done"] > 20 for told in result["per_type"].values())


def test_types_that_nobody_serves(run):
    """One line that says which there are, also where none was given."""
    for types in ((), ("--type", "t3=1")):
        done = run(*COMTE11, "--duration-s", "2", *types)
        assert done.status == 2
        expected = "--type: expected a type that cluster a or a neighbor serves (t1, t2), got "
        assert expected in done.err


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--topology", "comte8", "--engine", "fast"), "comte8: clusters[0].servers: expected a n"),
        (("--compare", "paper,paper"), "expected some of isolated, paper, two-choice, adaptive, "),
        (("--compare", "paper,isolted"), "got 'isolted', did you mean isolated?"),
        (("--compare", "paper", "--policy", "paper"), "--compare: expected without --policy"),
        (("--faults", "random:1", "--engine", "fast"), "--faults: expected with --engine full"),
        (("--says", "0.3"), "--says: expected with --sizes or a trace"),
        (("--shadow", "paper", "--engine", "fast"), "--shadow: expected with --engine full"),
        (("--faults", "nothing.yaml"), "nothing.yaml: expected"),
        (("--rate", "1e12"), "--rate, --duration-s: expected a schedule of at most 12000000 req"),
        (("--time-scale", "0.001"), "--time-scale: gossip_period_ms stretched by it: expected"),
        (("--plot", "x.gif"), "--plot: expected a name ending in .pdf, .png, .svg; got 'x.gif'"),
        (("--plot", "no/such/x.png"), "--plot: expected a file in a directory to write to"),
    ],
)
def test_unusable_options_are_told_in_one_line(refused, options, line):
    said = refused(*SIM, *options)
    assert line in said
    assert not said.startswith(":"), "nothing is named"


def test_a_fault_file_that_names_an_unknown_cluster(refused, tmp_path):
    faults = tmp_path / "faults.yaml"
    faults.write_text("faults:\n  - {at_s: 1, action: crash, cluster: zz}\n")
    said = refused(*SIM, "--faults", faults)
    assert said.startswith(f"{faults}: ")
    assert "zz" in said


def test_options_of_azures_format_need_it(run, tmp_path):
    """A trace of the other format has its own homes and service times."""
    plain, azure = tmp_path / "plain.csv", tmp_path / "azure.csv"
    plain.write_text("time_s,cluster\n0,a\n")
    azure.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    )
    command = ("sim", "overflow", "--topology", "ring5", "--assign", "b", "--json", "--trace")
    refused = run(*command, str(plain))
    told = "spillover: --assign: expected only with a trace in Azure's format\n"
    assert (refused.status, refused.out, refused.err) == (2, "", told)
    done = run(*command, str(azure))
    assert json.loads(done.out)["per_cluster"]["b"]["system_time_ms"]["mean"] is not None


def test_a_plan(run, numba):
    """Networked sites need fewer servers for the same p99, and say so with it kept."""
    done = run("plan", "--topology", "ring5", *POISSON, "--p99-ms", "90", "--json")
    assert done.status == 0
    plan = json.loads(done.out)
    for side in ("isolated", "networked"):
        assert plan[side]["total"] == sum(plan[side]["servers"].values())
        assert max(plan[side]["p99_ms"].values()) <= 90
    saved = 1 - plan["networked"]["total"] / plan["isolated"]["total"]
    assert plan["saved_share"] == pytest.approx(saved)
    assert saved >= 0


def test_a_plan_goes_by_99_of_100(run, numba, tmp_path):
    """Two of 200 may take longer than said, a third one may not."""
    trace = tmp_path / "trace.csv"
    for slow, status in ((2, 0), (3, 2)):
        times_ms = [*[20] * (200 - slow), *[500] * slow]
        lines = [f"{number},a,{time_ms}\n" for number, time_ms in enumerate(times_ms)]
        trace.write_text("time_s,cluster,service_ms\n" + "".join(lines))
        done = run("plan", "--topology", "ring5", "--trace", str(trace), "--p99-ms", "90", "--json")
        assert done.status == status, done.err
        if not status:
            told = json.loads(done.out)
            assert told["isolated"]["servers"]["a"] == 1
            assert told["isolated"]["p99_ms"]["a"] < 90
            assert (told["topology"], told["policy"], told["p99_ms"]) == ("ring5", "paper", 90)


def test_a_plan_that_cannot_be(run, numba):
    done = run("plan", "--topology", "ring5", *POISSON, "--p99-ms", "20")
    assert done.status == 2
    assert done.err == (
        "spillover: --p99-ms: expected at least 46: what requests at cluster a take without any "
        "waiting; got 20\n"
    )
