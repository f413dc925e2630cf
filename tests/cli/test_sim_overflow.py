"""`spillover sim overflow` and `spillover plan` as their users call them."""

from __future__ import annotations

import importlib.util
import json
import re
from types import SimpleNamespace

import pytest

from spillover.cli import main

POISSON = ("--workload", "poisson", "--rate", "60", "--duration-s", "3")
SIM = ("sim", "overflow", "--topology", "ring5", *POISSON)


@pytest.fixture
def run(capsys):
    """`run(*arguments)`: the command in this process; its status and what it wrote."""

    def run_it(*arguments):
        status = main(arguments)
        out, err = capsys.readouterr()
        return SimpleNamespace(status=status, out=out, err=err)

    return run_it


@pytest.fixture
def numba(require):
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")


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
    assert done.status == 0
    result = json.loads(done.out)
    assert result["faults"] == 1
    assert result["outcomes"]["unreachable"] > 50
    assert result["outcomes"]["done"] > 600
    assert sum(result["outcomes"].values()) == result["requests"]
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


@pytest.mark.slow
def test_a_policy_is_asked_along(run):
    """What would have been done otherwise, and by how much sooner, and nothing is."""
    options = ("sim", "overflow", "--topology", "ring5", "--workload", "bursts", "--duration-s")
    plain = json.loads(run(*options, "8", "--json").out)
    told = json.loads(run(*options, "8", "--shadow", "adaptive", "--json").out)
    sums = told.pop("shadow")
    assert sums["policy"] == "adaptive"
    assert told["system_time_ms"] == plain["system_time_ms"]
    words = run(*options, "8", "--shadow", "adaptive").err
    assert f"of {sums['same'] + sums['other']} decisions" in words
    assert min(sums["same"], sums["other"]) > 10
    assert sums["saved_ms"] > sums["lost_ms"] > 0.0


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


@pytest.mark.parametrize("engine", ["full", "fast"])
def test_the_seed_counts_for_a_trace_too(run, numba, tmp_path, engine):
    """Whoever comes when: policies draw."""
    trace = tmp_path / "burst.csv"
    trace.write_text("time_s,cluster\n" + "".join(f"{k / 200},a\n" for k in range(200)))
    at = ("sim", "overflow", "--topology", "ring5", "--trace", str(trace), "--engine", engine)
    hops = [json.loads(run(*at, "--seed", seed, "--json").out)["hops"] for seed in "112"]
    assert hops[0] == hops[1] != hops[2]


def test_a_trace_with_types(run, tmp_path):
    """Its column says them, and what is wrong with it is told of the schedule."""
    trace = tmp_path / "typed.csv"
    trace.write_text("time_s,cluster,service_ms,type\n0,a,500,t1\n0.1,a,400,t2\n")
    at = ("sim", "overflow", "--topology", "comte11", "--trace", str(trace))
    types = json.loads(run(*at, "--json").out)["per_type"]
    assert types["t1"]["system_time_ms"]["mean"] == pytest.approx(500.0)
    assert types["t2"]["system_time_ms"]["mean"] == pytest.approx(400.0)
    trace.write_text("time_s,cluster,type\n0,a,t9\n")
    assert "schedule: type: expected a type that" in run(*at).err


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--topology", "comte8", "--engine", "fast"), "comte8: clusters[0].servers: expected a n"),
        (("--compare", "paper,paper"), "expected some of isolated, paper, two-choice, adaptive, "),
        (("--compare", "best"), "got 'best'"),
        (("--compare", "paper,isolted"), "got 'isolted', did you mean isolated?"),
        (("--compare", "paper", "--policy", "paper"), "--compare: expected without --policy"),
        (("--faults", "random:1", "--engine", "fast"), "--faults: expected with --engine full"),
        (("--faults", "random:1", "--policy", "shared"), "--faults: expected without shared"),
        (("--shadow", "paper", "--engine", "fast"), "--shadow: expected with --engine full"),
        (("--shadow", "paper", "--compare", "paper,shared"), "--shadow: expected without shared"),
        (("--faults", "nothing.yaml"), "nothing.yaml: expected"),
        (("--assign", "a"), "--assign: expected only with a trace in Azure's format"),
        (("--rate", "1e12"), "--rate, --duration-s: expected a schedule of at most 12000000 req"),
        (("--time-scale", "0.001"), "--time-scale: gossip_period_ms stretched by it: expected"),
        (("--plot", "x.gif"), "--plot: expected a name ending in .pdf, .png, .svg; got 'x.gif'"),
        (("--plot", "no/such/x.png"), "--plot: expected a file in a directory to write to"),
    ],
)
def test_unusable_options_are_told_in_one_line(run, tmp_path, options, line):
    done = run(*SIM, *options)
    assert done.status == 2
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert line in done.err
    assert not done.err.startswith("spillover: :"), "nothing is named"


def test_a_fault_file_that_names_an_unknown_cluster(run, tmp_path):
    faults = tmp_path / "faults.yaml"
    faults.write_text("faults:\n  - {at_s: 1, action: crash, cluster: zz}\n")
    done = run(*SIM, "--faults", str(faults))
    assert done.status == 2
    assert done.err.startswith(f"spillover: {faults}: ")
    assert "zz" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["isolated", "paper", "two-choice", "shared"])
def test_twice_as_slow(run, policy):
    """Everything takes twice as long, to the last bit, and nothing else is other than before."""
    bursts = ("sim", "overflow", "--topology", "ring5", "--workload", "bursts")
    command = (*bursts, "--duration-s", "5", "--policy", policy, "--json")
    once, twice = (json.loads(run(*command, "--time-scale", scale).out) for scale in ("1", "2"))
    times_ms = once.pop("system_time_ms")
    assert twice.pop("system_time_ms") == {name: 2 * time for name, time in times_ms.items()}
    for name in ("hops", "outcomes", "queue_length_max", "requests", "forwarded_share"):
        assert once[name] == twice[name]


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


def test_a_plan_with_idle_sites(run, numba, tmp_path):
    """A site where nothing comes in has no p99: null, and a dash for people."""
    trace = tmp_path / "trace.csv"
    trace.write_text("time_s,cluster\n" + "0,a\n" * 9)
    command = ("plan", "--topology", "ring5", "--trace", str(trace), "--p99-ms", "90")
    plan = json.loads(run(*command, "--json").out)
    for side in ("isolated", "networked"):
        assert plan[side]["p99_ms"]["a"] > 0
        assert [plan[side]["p99_ms"][site] for site in "bcde"] == [None] * 4
    table = run(*command).err
    row = next(line for line in table.splitlines() if "│ b " in line)
    assert row.count(" - ") == 2


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


@pytest.mark.parametrize(
    ("own", "asked", "planned"),
    [
        ("two-choice", (), "two-choice"),
        ("isolated", (), "adaptive"),
        ("two-choice", ("--policy", "paper"), "paper"),
    ],
)
def test_a_plan_is_of_the_topologys_own_policy(run, numba, tmp_path, own, asked, planned):
    """Unless another is asked for, or its own is none that is networked."""
    two, trace = tmp_path / "two.yaml", tmp_path / "trace.csv"
    two.write_text(
        f"policy: {own}\nclusters: [{{id: a, servers: 1}}, {{id: b, servers: 1}}]\n"
        "links: [{between: [a, b]}]\n"
    )
    trace.write_text("time_s,cluster,service_ms\n0,a,10\n0,b,10\n")
    at = ("plan", "--topology", str(two), "--trace", str(trace), "--p99-ms", "90", "--json")
    told = json.loads(run(*at, *asked).out)
    assert told["policy"] == planned
    assert told["networked"]["servers"] == {"a": 1, "b": 1}


def test_a_plan_that_cannot_be(run, numba):
    done = run("plan", "--topology", "ring5", *POISSON, "--p99-ms", "20")
    assert done.status == 2
    assert done.err == (
        "spillover: --p99-ms: expected at least 46: what requests at cluster a take without any "
        "waiting; got 20\n"
    )


@pytest.mark.slow
def test_the_picture_can_be_read(monkeypatch, require, tmp_path):
    """Ticks are numbers as people write them, and there are no bars: their axis has no zero."""
    require(importlib.util.find_spec("matplotlib"), "matplotlib, from the extra `report`")
    from matplotlib.figure import Figure as Canvas

    drawn = []
    save = Canvas.savefig

    def keep(figure, *arguments, **options):
        drawn.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Canvas, "savefig", keep)
    plot = str(tmp_path / "times.png")
    assert main([*SIM, "--compare", "isolated,paper", "--plot", plot]) == 0
    (figure,) = drawn
    shares, homes = figure.axes
    check_what_is_drawn(figure, shares, homes)
    assert not shares.patches
    assert not homes.patches
    for axis, form in (
        (shares.xaxis, r"\d{2,5}"),
        (shares.yaxis, r"(100|10|1|0\.0*1) %"),
        (homes.yaxis, r"\d{2,5}"),
    ):
        low, high = axis.get_view_interval()
        texts = [
            label.get_text().replace("\N{THIN SPACE}", "")
            for at, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
            if low <= at <= high
        ]
        assert len(texts) >= 2
        assert all(re.fullmatch(form, text) for text in texts), texts


def check_what_is_drawn(figure, shares, homes):
    """Each policy's requests, ever fewer of which took longer; and at each home, side by side, from
    the mean to p99."""
    counts = re.fullmatch(r"ring5: (\d+) requests", figure.get_suptitle())
    assert 600 < int(counts[1]) < 1200
    assert [shares.get_xscale(), shares.get_yscale(), homes.get_yscale()] == ["log"] * 3
    assert (shares.get_xlabel(), homes.get_xlabel()) == ("system time, ms", "home")
    assert [text.get_text() for text in shares.get_legend().get_texts()] == ["isolated", "paper"]
    for line in shares.lines:
        slower = line.get_ydata()
        assert 99.0 < slower[0] <= 100.0
        assert list(slower) == sorted(slower, reverse=True), "ever fewer took longer"
    assert [label.get_text() for label in homes.get_xticklabels()] == list("abcde")
    assert [line.get_color() for line in homes.lines] == [
        line.get_color() for line in shares.lines for _ in range(15)
    ]
    for number, (line, mean, p99) in enumerate(
        zip(homes.lines[::3], homes.lines[1::3], homes.lines[2::3], strict=True)
    ):
        policy, home = divmod(number, 5)
        (at, _), (low, high) = line.get_data()
        assert at == pytest.approx(home - 0.175 + 0.35 * policy), "the policies side by side"
        assert low < high
        assert (mean.get_data(), mean.get_marker()) == (([at], [low]), "o")
        assert (p99.get_data(), p99.get_marker()) == (([at], [high]), "_")
