"""The command `spillover-loadgen run` as its users meet it."""

import json
import socket
import subprocess
import sys

import pytest

from spillover_loadgen.cli import main

COMMAND = [sys.executable, "-m", "spillover_loadgen"]


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("time_s,cluster,service_ms\n0,a,5\n0.05,b,5\n3600,a,5\n")
    return str(path)


def run(*arguments):
    return subprocess.run(
        [*COMMAND, "run", *arguments], capture_output=True, text=True, check=False
    )


def targets(node):
    """Both clusters at the one that is scripted, which cannot be either."""
    return ["--target", f"a={node.url}", "--target", f"b={node.url}", "--no-check"]


@pytest.mark.processes
def test_json_is_one_object_and_nothing_else(node, trace, tmp_path):
    out = tmp_path / "out.jsonl"
    ran = run(
        *[*targets(node), "--trace", trace, "--duration-s", "1"],
        *["--json", "--seed", "4", "--out", str(out)],
    )
    assert ran.returncode == 0
    assert ran.stderr == "" or "left more than" in ran.stderr, "it is told if the machine is busy"
    assert ran.stdout.count("\n") == 1
    result = json.loads(ran.stdout)
    assert result["sent"] == result["outcomes"]["ok"] == 2
    assert result["forwarded_share"] == 1.0
    assert result["per_cluster"]["b"]["system_time_ms"]["mean"] >= 12.5
    assert (result["seed"], result["duration_s"]) == (4, 1.0)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["cluster"] for line in lines] == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "duration_s"),
    [
        (["--workload", "poisson", "--rate", "50", "--duration-s", "0.5"], 0.5),
        (["--workload", "bursts", "--duration-s", "0.8"], 0.8),
        (["--workload", "bursts", "--duration-s", "0.8", "--time-scale", "0.5"], 0.4),
    ],
)
def test_workloads_are_sent(node, capfd, arguments, duration_s):
    assert main(["run", *targets(node), *arguments, "--json"]) == 0
    result = json.loads(capfd.readouterr().out)
    assert result["duration_s"] == pytest.approx(duration_s)
    assert result["sent"] == len(node.received) == sum(result["outcomes"].values()) > 0


def test_no_target_that_takes_anything_fails(capfd, trace):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{holder.getsockname()[1]}"
        arguments = ["--target", f"a={url}", "--target", f"b={url}", "--duration-s", "1"]
        arguments.append("--no-check")
        assert main(["run", *arguments, "--trace", trace, "--json"]) == 1
    told = capfd.readouterr()
    assert json.loads(told.out)["outcomes"]["unreachable"] == 2
    (said,) = (line for line in told.err.splitlines() if "left more than" not in line)
    assert said.startswith("spillover-loadgen: no request could be sent: ")


RUN = "run --target a=http://h:1"
ONLY_AZURE = "expected only with a trace in Azure's format"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("rnu", "usage: unknown command 'rnu', did you mean run?"),
        ("run --targt a=http://h:1", "usage: unknown option --targt, did you mean --target"),
        ("run --workload bursts", "usage: the following arguments are required: --target"),
        (RUN, "usage: one of the arguments --workload --trace"),
        ("--target a", "usage: --target: expected CLUSTER=URL, got 'a'"),
        ("--target a=ftp://h", "usage: --target: expected http://HOST[:PORT]"),
        ("--target a=http://h:1 --target a=http://h:2", "--target: expected each cluster"),
        ("--workload waves", "usage: --workload: invalid choice: 'waves'"),
        ("--rate 0", "usage: --rate: expected a number above 0, got '0'"),
        ("--type t1", "usage: --type: expected TYPE=WEIGHT, got 't1'"),
        ("--type t1=0", "usage: --type: expected a number above 0, got '0'"),
        ("--type t1=1 --type t1=2", "--type: expected each type once, got 't1' twice"),
        ("--type .=1", "--type: expected the name of a type, got '.'"),
        ("--rate 5", "--rate: expected only with --workload poisson"),
        ("--time-scale -2", "usage: --time-scale: expected a number above 0, got '-2'"),
        ("--context-token-ms -1", "usage: --context-token-ms: expected a number of at least 0"),
        ("--deadline-ms soon", "usage: --deadline-ms: expected a finite number, got 'soon'"),
        ("--out /nowhere/x", "--out: expected a file that can be written, got '/nowhere/x'"),
        (f"{RUN} --workload poisson --duration-s 1", "--rate: expected with --workload poisson"),
        (f"{RUN} --workload poisson --rate 1", "--duration-s: expected with --workload poisson"),
        (f"{RUN} --trace /nowhere/t.csv", "/nowhere/t.csv: expected a readable file: No such file"),
        (
            "--duration-s 1e9",
            "--duration-s: expected a schedule of at most 12000000 requests, ",
        ),
        ("--assign z", f"--assign: {ONLY_AZURE}"),
        ("--context-token-ms 0.25", f"--context-token-ms: {ONLY_AZURE}"),
        ("--generated-token-ms 1", f"--generated-token-ms: {ONLY_AZURE}"),
    ],
)
def test_bad_usage_is_told_in_one_line(capfd, words, message):
    if words.startswith("--"):
        words = f"run --workload bursts --target z=http://h:1 {words}"
    assert main(words.split()) == 2
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"spillover-loadgen: {message}")
    assert told.err.count("\n") == 1


def test_a_target_that_does_not_answer(capfd):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{holder.getsockname()[1]}"
        words = ("--workload", "bursts", "--duration-s", "0.2", "--json")
        assert main(["run", "--target", f"a={url}", *words]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    told = f"--target: expected cluster a at {url}, got no answer: cannot connect: Connection refu"
    assert err.startswith(f"spillover-loadgen: {told}")
