"""What becomes of options before anything is begun: settings, pools, and words for users."""

import argparse
import json
from pathlib import Path

from spillover.cli import lease, main, queue, queue_work, up
from spillover.cli.commands import make_parser
from spillover.cli.parsing import REDIS_VARIABLE, config_redis
from spillover.cli.tls_options import VARIABLES, tls_files
from spillover.cli.up_told import commands, curl, invitation
from spillover.inputs.topology_file import load_topology


def read(*words):
    """The options, as the command would have them."""
    return make_parser(*words[:2]).parse_args(words)


def test_a_producer_is_as_it_was_asked_for():
    """Times in seconds."""
    words = ("--buffers", "7", "--visibility-ms", "1500", "--probe-expiry-ms", "250")
    more = ("--deliveries-max", "3", "--held-limit-bytes", "999")
    settings = queue.settings_of(read("queue", "--id", "p1", *words, *more))
    assert (settings.id, settings.buffers, settings.deliveries_max) == ("p1", 7, 3)
    assert (settings.visibility_s, settings.probe_expiry_s) == (1.5, 0.25)
    assert settings.held_limit_bytes == 999
    plain = queue.settings_of(read("queue", "--id", "p1"))
    assert (plain.buffers, plain.deliveries_max) == (5, 10)
    assert (plain.visibility_s, plain.probe_expiry_s) == (30.0, 5.0)
    assert plain.held_limit_bytes > 1_000_000


def test_objects_are_handled_as_it_was_asked_for():
    words = ("--handler", "python:m:f", "--producer", "http://h:1", "--at-once", "3")
    pool = queue_work.pool_of(read("queue", "work", *words, "--workers", "process"))
    assert (pool.server_count, pool.handler, pool.workers) == (3, "python:m:f", "process")
    assert queue_work.pool_of(read("queue", "work", *words)).workers == "thread"


def test_files_of_a_certificate_may_be_named_by_the_environment(monkeypatch):
    """An option counts more; the key is not the certificate."""
    for option, variable in VARIABLES.items():
        monkeypatch.setenv(variable, f"there{option}")
    named = dict.fromkeys(("tls_cert", "tls_key", "tls_ca"))
    files = tls_files(argparse.Namespace(**named | {"tls_key": "own.key"}))
    assert (files.cert, files.key, files.ca) == ("there--tls-cert", "own.key", "there--tls-ca")


def test_a_configuration_goes_by_a_redis_if_one_is_named_in_any_way(monkeypatch, tmp_path):
    monkeypatch.setenv(REDIS_VARIABLE, "redis://environment")
    file = tmp_path / "url"
    file.write_text("redis://file\n")
    told = {"config_redis": None, "redis_url_file": None}
    assert config_redis(argparse.Namespace(**told)) is None
    assert config_redis(argparse.Namespace(**told | {"redis_url_file": file})) == file
    for given, url in (("", "redis://environment"), ("redis://option", "redis://option")):
        assert config_redis(argparse.Namespace(**told | {"config_redis": given})) == url


def test_a_member_need_not_serve_anything():
    words = ("--group", "g", "--node", "n", "--partitions", "1", "--handler", "python:m:f")
    for more, place in (
        ((), ("127.0.0.1", 0)),
        (("--bind", "off"), None),
        (("--bind", "[::1]:80"), ("::1", 80)),
    ):
        assert read("lease", "run", *words, *more).bind == place
    assert lease.lease_times(read("lease", "run", *words)) == lease.lease_times(
        read("lease", "run", *words, "--max-lease-ms", "180000")
    )


def test_the_request_that_is_shown_can_be_served():
    """By a pool it has a type, where it must have one."""
    assert up._example(load_topology("ring5")) == {"payload": {}}
    assert up._example(load_topology("comte11")) == {"type": "t1", "payload": {}}


def test_what_is_to_be_tried_works_as_it_stands():
    """In a shell: with the CA, which may lie in a directory with a blank, and with an API token."""
    ca = Path("/my own/ca.crt")
    assert commands("http://h:1", None) == ["  spillover status http://h:1"]
    assert commands("https://h:1", ca) == [
        "  export SPILLOVER_CA_FILE='/my own/ca.crt'",
        "  spillover status https://h:1",
    ]
    assert curl("http://h:1", None, has_tokens=False) == "  curl http://h:1"
    assert curl("https://h:1", ca, has_tokens=True, header="Proxy-Authorization") == (
        "  curl --cacert '/my own/ca.crt' "
        '-H "Proxy-Authorization: Bearer $SPILLOVER_TOKEN" https://h:1'
    )
    assert invitation(has_tokens=False) == "Try:"
    assert "in SPILLOVER_TOKEN:" in invitation(has_tokens=True)


def test_an_api_token_is_added_behind_what_stands_there(capsys, tmp_path):
    """Also where the last line has no end."""
    file = tmp_path / "tokens.yaml"
    new = ("token", "new", "--role", "read", "--append", str(file), "--json", "--name")
    assert main([*new, "one"]) == 0
    file.write_text(file.read_text().rstrip("\n"))
    assert main([*new, "two"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["name"] for one in told] == ["one", "two"]
    assert [one in file.read_text() for one in ("one", "two")] == [True, True]
