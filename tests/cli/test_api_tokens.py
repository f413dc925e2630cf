"""Operators' commands at a node with API tokens, and `spillover token new`, which makes them."""

import json
import stat

import pytest

from spillover.inputs.api_tokens import load_api_tokens, parse_api_tokens
from spillover.model.access import Role
from support.api_tokens import SECRETS, access_of_tests


@pytest.fixture
def token_file(tmp_path):
    def written(holder):
        path = tmp_path / f"{holder}.secret"
        path.write_text(SECRETS[holder] + "\n")
        return path

    return written


def test_commands_show_an_api_token_from_a_file_or_the_environment(
    running, nodes, told, token_file, monkeypatch, tmp_path
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
            status, out, err = told(*call)
            assert (status, out) == (1, ""), call
            assert err.startswith("spillover: unauthenticated: expected an API token"), call
            status, out, err = told(*call, "--token-file", file)
            if call[0] == "explain":
                assert err == "spillover: cluster a knows of no request 'none'\n"
            else:
                assert status == 0, (call, err)
            topology.write_text(out) if call[0] == "config" else None
        status, out, err = told("drain", url, "--token-file", reader)
        role = "expected an API token with the role operate; reader has not got it"
        assert (status, err) == (1, f"spillover: forbidden: {role}\n")
        put = ("config", "set", url, topology)
        assert told(*put, "--token-file", reader)[0] == 1
        monkeypatch.setenv("SPILLOVER_TOKEN", SECRETS["operator"])
        assert told(*put)[0] == 0
        assert told("config", "diff", url, topology)[0] == 0
        assert told("status", url, "--token-file", reader)[0] == 0


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", "wört".encode(), b"x" * 600])
def test_a_file_that_holds_no_secret_is_bad_input_and_is_not_shown(refused, tmp_path, content):
    file = tmp_path / "secret"
    file.write_bytes(content)
    said = refused("status", "http://127.0.0.1:9", "--token-file", file)
    assert said.startswith(f"--token-file {file}: expected ")
    assert "two words" not in said
    refused("drain", "http://127.0.0.1:9", "--token-file", tmp_path / "none")


def test_a_new_api_token_is_shown_once_and_fits_into_a_file(told, tmp_path):
    file = tmp_path / "tokens.yaml"
    new = ("token", "new", "--tenant", "shop", "--append", file)
    status, secret, err = told(*new, "--name", "one", "--role", "submit")
    assert status == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    status, out, _ = told(*new, "--name", "two", "--role", "read", "--role", "submit", "--json")
    made = json.loads(out)
    one, two = load_api_tokens([str(file)])
    assert (one.name, one.tenant, one.roles) == ("one", "shop", {Role.SUBMIT})
    assert two.roles == {Role.SUBMIT, Role.READ}
    assert made["sha256"] == two.sha256.hex()
    assert made["roles"] == ["submit", "read"]
    for shown in (secret.strip(), made["secret"]):
        assert shown not in file.read_text()
        assert shown not in err
    # Without a file the entry is told, for people, beside the secret.
    status, _, err = told("token", "new", "--name", "ops", "--role", "operate")
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
def test_what_no_api_token_can_be_is_refused_and_leaves_the_file(
    refused, told, tmp_path, more, said
):
    file = tmp_path / "tokens.yaml"
    told("token", "new", "--name", "old", "--role", "read", "--append", file)
    before = file.read_text()
    assert said in refused("token", "new", *more, "--append", file)
    assert file.read_text() == before
