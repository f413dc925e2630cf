"""Files of API tokens: what may stand in them, and what is said of what may not."""

import os

import pytest
import yaml

from spillover.inputs.api_tokens import (
    ENTRIES_MAX,
    LIMIT_BYTES,
    dump_api_token,
    load_api_tokens,
    new_api_token,
    new_secret,
    parse_api_tokens,
)
from spillover.model.access import ApiToken, Quota, Role
from spillover.model.errors import InputError

DIGEST = "ab" * 32
SECRET_LIKE = "spillover_thisIsTheSecretItself"  # noqa: S105 - it is none


def entry(**fields):
    whole = {"name": "one", "sha256": DIGEST, "tenant": "shop", "roles": ["submit"]}
    return {name: value for name, value in (whole | fields).items() if value is not None}


def parsed(*entries):
    return parse_api_tokens({"tokens.yaml": yaml.safe_dump(list(entries))})


def fault(*entries):
    with pytest.raises(InputError) as caught:
        parsed(*entries)
    told = str(caught.value)
    assert "\n" not in told
    assert told.startswith("tokens.yaml: ")
    return told.removeprefix("tokens.yaml: ")


@pytest.mark.parametrize(
    ("name", "tenant", "option"), [("", "", "--name"), ("a", "a b", "--tenant")]
)
def test_none_is_made_that_no_file_may_hold(name, tenant, option):
    """A tenant may be left out, a name may not."""
    with pytest.raises(InputError, match=f"^{option}: expected"):
        new_api_token(name, new_secret(), tenant, [Role.READ])
    assert new_api_token("a", new_secret(), "", [Role.READ]).tenant == ""


def test_an_entry_has_a_name_a_digest_a_tenant_roles_and_a_quota():
    quota = {"max_queued": 100, "max_running": 20, "requests_per_s": 0.5, "max_sessions": 7}
    assert parsed(entry(roles=["submit", "read"], quota=quota)) == (
        ApiToken(
            "one",
            bytes.fromhex(DIGEST),
            "shop",
            frozenset({Role.SUBMIT, Role.READ}),
            Quota(100, 20, 0.5, 7),
        ),
    )


def test_who_makes_no_requests_needs_no_tenant():
    (token,) = parsed(entry(tenant=None, roles=["operate"]))
    assert token.tenant == ""
    assert token.may(Role.READ)
    assert not token.may(Role.SUBMIT)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "a b"}, "name: expected 1 to 64 letters"),
        ({"name": "x" * 65}, "name: expected 1 to 64 letters"),
        ({"tenant": None}, "tenant: expected 1 to 64 letters"),
        ({"tenant": "a/b"}, "tenant: expected 1 to 64 letters"),
        ({"sha256": None}, "sha256: expected the SHA-256 of the secret"),
        ({"sha256": DIGEST[1:]}, "sha256: expected the SHA-256 of the secret"),
        ({"sha256": 12}, "sha256: expected the SHA-256 of the secret"),
        ({"roles": None}, "roles: expected a list of roles"),
        ({"roles": []}, "roles: expected a list of roles"),
        ({"roles": "submit"}, "roles: expected a list of roles"),
        ({"roles": ["admin"]}, "roles: expected submit, read, operate, got 'admin'"),
        ({"roles": [{}]}, "roles: expected submit, read, operate, got a mapping"),
        ({"quota": 3}, "quota: expected a mapping of fields"),
        ({"quota": {"max_queue": 3}}, "did you mean max_queued?"),
        ({"quota": {"max_queued": 0}}, "quota.max_queued: expected a whole number"),
        ({"quota": {"max_running": True}}, "quota.max_running: expected a whole number"),
        ({"quota": {"requests_per_s": 0}}, "quota.requests_per_s: expected a number above 0"),
        ({"quota": {"requests_per_s": float("nan")}}, "quota.requests_per_s: expected a number"),
        ({"tenant": None, "roles": ["read"], "quota": {"max_queued": 1}}, "quota: expected a ten"),
        ({"role": ["submit"]}, "unknown field 'role', did you mean roles?"),
    ],
)
def test_each_fault_names_the_entry_and_its_line(fields, said):
    told = fault(entry(name="first", sha256="00" * 32), entry(**fields))
    line, _, rest = told.partition(", ")
    assert line.startswith("line ")
    assert int(line.removeprefix("line ")) > 2
    assert rest.startswith("entry 2")
    assert said in rest


def test_the_line_is_the_one_where_the_entry_begins():
    text = f'# them\n- {{name: one, sha256: "{DIGEST}", roles: [read]}}\n\n\n- name: [2]\n'
    with pytest.raises(InputError, match=r"^t: line 5, entry 2, name: expected"):
        parse_api_tokens({"t": text})


def test_no_message_shows_what_may_be_a_secret():
    for fields in ({"sha256": SECRET_LIKE}, {"sha256": [SECRET_LIKE]}):
        assert SECRET_LIKE not in fault(entry(**fields))


def test_names_and_secrets_are_there_once_over_all_files():
    text = yaml.safe_dump([entry()])
    with pytest.raises(InputError, match=r"^two: line 1, entry 1, name: expected each name once"):
        parse_api_tokens({"one": text, "two": text})
    assert "each secret once" in fault(entry(), entry(name="two", sha256=DIGEST.upper()))


def test_quotas_of_one_tenant_agree():
    told = fault(entry(quota={"max_queued": 3}), entry(name="two", sha256="cd" * 32))
    assert told.endswith("quota: expected the same as of one, which is of tenant shop too")
    same = {"quota": {"max_queued": 3}}
    assert len(parsed(entry(**same), entry(name="two", sha256="cd" * 32, **same))) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a list of API tokens, got nothing"),
        ("a: b", "expected a list of API tokens, got a mapping"),
        ("- x\n", "line 1, entry 1: expected a mapping of fields"),
        ("- {name: a, name: b}", "line 1: expected each field once"),
        ("- &a [*a]\n", "line 1: expected the alias of a value before it"),
        ("- {", "line 1: expected YAML"),
    ],
)
def test_what_is_no_such_file_is_told_in_one_line(text, said):
    with pytest.raises(InputError, match=r"^t: ") as caught:
        parse_api_tokens({"t": text})
    assert said in str(caught.value)


def test_files_are_bounded(tmp_path):
    file = tmp_path / "tokens.yaml"
    file.write_text("#" * (LIMIT_BYTES + 1))
    with pytest.raises(InputError, match="expected at most"):
        load_api_tokens([str(file)])
    with pytest.raises(InputError, match=f"expected at most {ENTRIES_MAX} API tokens"):
        parse_api_tokens({"t": "- x\n" * (ENTRIES_MAX + 1)})
    with pytest.raises(InputError, match="expected a file, got a directory"):
        load_api_tokens([str(tmp_path)])
    with pytest.raises(InputError, match="found none"):
        load_api_tokens([str(tmp_path / "none.yaml")])


def test_a_file_whose_end_is_cut_off_is_refused_unless_whole_entries_are_left():
    quota = "{max_queued: 100, requests_per_s: 50}"
    entries = [
        f'- {{name: n{i}, sha256: "{i:064x}", tenant: t, roles: [submit, read], quota: {quota}}}\n'
        for i in range(2)
    ]
    whole = parse_api_tokens({"t": "".join(entries)})
    ends = {len(entries[0]): whole[:1], len("".join(entries)): whole}
    for cut in range(len("".join(entries)) + 1):
        text = "".join(entries)[:cut]
        if cut in ends:
            assert parse_api_tokens({"t": text}) == ends[cut]
        else:
            with pytest.raises(InputError):
                parse_api_tokens({"t": text})


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_cannot_be_read_again_is_refused_at_once(tmp_path, make):
    make(tmp_path / "tokens")
    with pytest.raises(InputError, match=r"tokens: expected a file, [^\n]*got a (pipe|directory)"):
        load_api_tokens([str(tmp_path / "tokens")])


@pytest.mark.parametrize("name", ["one", "no", "1e5", "12", "2024-01-01"])
def test_what_is_written_is_read_as_the_same(name):
    made = new_api_token(name, new_secret(), name, [Role.SUBMIT, Role.OPERATE])
    assert parse_api_tokens({"t": dump_api_token(made)}) == (made,)


def test_secrets_are_long_and_differ():
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert min(map(len, made)) > 43 + len("spillover")
