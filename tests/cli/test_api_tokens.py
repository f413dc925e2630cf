"""Operators' commands at a node with API tokens, and `spillover token new`, which makes them."""

from __future__ import annotations

import json
import stat

import pytest

from spillover.cli import main
from spillover.inputs.api_tokens import load_api_tokens, parse_api_tokens
from spillover.model.access import Role
from support.api_tokens import SECRETS, access_of_tests


def run_command(capsys, *arguments):
    capsys.readouterr()
    status = main([str(one) for one in arguments])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture(autouse=True)
def _no_token_of_ones_own(monkeypatch):
    monkeypatch.delenv("SPILLOVER_TOKEN", raising=False)


@pytest.fixture
def token_file(tmp_path):
    def written(holder):
        path = tmp_path / f"{holder}.secret"
        path.write_text(SECRETS[holder] + "\n")
        return path

    return written


def test_commands_show_an_api_token_from_a_file_or_the_environment(
    running, nodes, capsys, token_file, monkeypatch, tmp_path
):
    topology = tmp_path / "changed.yaml"
    with running(nodes.topology_of("a", policy="isolated"), access=access_of_tests()) as run:
        url = run.urls["a"]
        operator, reader = token_file("operator"), token_file("reader")
        calls = {
            ("status", url, "--json"): reader,
            ("explain", url, "none", "--json"): reader,
            ("config", "get", url): reader,
            ("drain", url, "--json"): operator,
            ("resume", url, "--json"): operator,
        }
        for call, file in calls.items():
            status, out, err = run_command(capsys, *call)
            assert (status, out) == (1, ""), call
            assert err.startswith("spillover: unauthenticated: expected an API token"), call
            status, out, err = run_command(capsys, *call, "--token-file", file)
            if call[0] == "explain":
                assert err == "spillover: cluster a knows of no request 'none'\n"
            else:
                assert status == 0, (call, err)
            topology.write_text(out) if call[0] == "config" else None
        status, out, err = run_command(capsys, "drain", url, "--token-file", reader)
        role = "expected an API token with the role operate; reader has not got it"
        assert (status, err) == (1, f"spillover: forbidden: {role}\n")
        put = ("config", "set", url, topology)
        assert run_command(capsys, *put, "--token-file", reader)[0] == 1
        monkeypatch.setenv("SPILLOVER_TOKEN", SECRETS["operator"])
        assert run_command(capsys, *put)[0] == 0
        assert run_command(capsys, "config", "diff", url, topology)[0] == 0
        assert run_command(capsys, "status", url, "--token-file", reader)[0] == 0


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", "wört".encode(), b"x" * 600])
def test_a_file_that_holds_no_secret_is_bad_input_and_is_not_shown(capsys, tmp_path, content):
    file = tmp_path / "secret"
    file.write_bytes(content)
    status, out, err = run_command(capsys, "status", "http://127.0.0.1:9", "--token-file", file)
    assert (status, out) == (2, "")
    assert err.startswith(f"spillover: --token-file {file}: expected ")
    assert err.count("\n") == 1
    assert "two words" not in err
    gone = tmp_path / "none"
    status, _, err = run_command(capsys, "drain", "http://127.0.0.1:9", "--token-file", gone)
    assert (status, err.count("\n")) == (2, 1)


def test_a_new_api_token_is_shown_once_and_fits_into_a_file(capsys, tmp_path):
    file = tmp_path / "tokens.yaml"
    new = ("token", "new", "--tenant", "shop", "--append", file)
    status, secret, err = run_command(capsys, *new, "--name", "one", "--role", "submit")
    assert status == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    status, out, _ = run_command(
        capsys, *new, "--name", "two", "--role", "read", "--role", "submit", "--json"
    )
    told = json.loads(out)
    one, two = load_api_tokens([str(file)])
    assert (one.name, one.tenant, one.roles) == ("one", "shop", {Role.SUBMIT})
    assert two.roles == {Role.SUBMIT, Role.READ}
    assert told["sha256"] == two.sha256.hex()
    assert told["roles"] == ["submit", "read"]
    for shown in (secret.strip(), told["secret"]):
        assert shown not in file.read_text()
        assert shown not in err
    # Without a file the entry is told, for people, beside the secret.
    status, _, err = run_command(capsys, "token", "new", "--name", "ops", "--role", "operate")
    (ops,) = parse_api_tokens({"t": err.partition("\n\n")[2].partition("\n\n")[0] + "\n"})
    assert (status, ops.name, ops.tenant) == (0, "ops", "")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--name", "x", "--role", "submit"), "--tenant: expected the id of a tenant"),
        (("--name", "a b", "--role", "read"), "--name: expected 1 to 64 letters"),
        (("--name", "x", "--tenant", "a/b", "--role", "submit"), "--tenant: expected 1 to 64"),
        (("--name", "x", "--role", "king"), "'king' (choose from submit, read, operate)"),
        (("--name", "old", "--role", "read"), "expected each name once, got 'old' again"),
    ],
)
def test_what_no_api_token_can_be_is_refused_and_leaves_the_file(capsys, tmp_path, more, said):
    file = tmp_path / "tokens.yaml"
    run_command(capsys, "token", "new", "--name", "old", "--role", "read", "--append", file)
    before = file.read_text()
    try:
        status, out, err = run_command(capsys, "token", "new", *more, "--append", file)
    except SystemExit as ended:
        status, (out, err) = ended.code, capsys.readouterr()
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert file.read_text() == before
