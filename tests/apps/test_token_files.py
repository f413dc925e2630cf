"""Files of API tokens that change while a node runs: the last good ones count, and it is told."""

import asyncio
import logging
import threading
from contextlib import ExitStack
from functools import partial

import pytest

from spillover.apps.http import token_files
from spillover.apps.http.access import Access, ApiTokens
from spillover.apps.http.token_files import TokenFiles
from spillover.inputs.api_tokens import dump_api_token, new_api_token
from spillover.model.access import Role
from spillover.model.errors import InputError
from support.loop import until


def entry(name, secret):
    return dump_api_token(new_api_token(name, secret, "shop", [Role.SUBMIT]))


def knows(files, secret):
    return files.access.tokens.find(b"Bearer " + secret.encode()) is not None


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tokens.yaml"
    path.write_text(entry("one", "first"))
    return path


def warnings(caplog):
    return [one.msg.fields["reason"] for one in caplog.records if one.levelname == "WARNING"]


async def test_a_changed_file_counts_and_a_bad_one_does_not(file, caplog):
    caplog.set_level(logging.INFO)
    files = TokenFiles([str(file)])
    told = []
    files.on_change = told.append
    await files.look()
    assert told == []
    file.write_text(entry("one", "first") + entry("two", "second"))
    await files.look()
    assert [len(tokens) for tokens in told] == [2]
    assert knows(files, "second")
    file.write_text(entry("two", "second") + "- {name: third, sha256: 12, roles: [read]}\n")
    for _ in range(3):
        await files.look()
    assert knows(files, "first")
    assert knows(files, "second")
    file.unlink()
    await files.look()
    assert knows(files, "first")
    file.write_text(entry("two", "second"))
    await files.look()
    assert not knows(files, "first")
    assert [len(tokens) for tokens in told] == [2, 1]
    bad, gone = warnings(caplog)  # each once, however often it is looked at
    assert bad.startswith(f"{file}: line 5, entry 2, sha256: expected")
    assert "found none" in gone


async def test_whom_any_of_the_files_does_not_name_any_more_is_out(file):
    second = file.with_name("more.yaml")
    second.write_text(entry("two", "second"))
    files = TokenFiles([str(file), str(second)])
    assert knows(files, "first")
    assert knows(files, "second")
    second.write_text(entry("three", "third"))
    await files.look()
    assert [knows(files, secret) for secret in ("first", "second", "third")] == [1, 0, 1]


async def test_no_thread_to_read_with_leaves_the_old_ones_in_place(file, caplog):
    """A machine that is out of them: it is told once, and the next look finds what is new."""
    files = TokenFiles([str(file)])
    file.write_text(entry("two", "second"))
    usual = threading.stack_size(1 << 62)
    try:
        for _ in range(2):
            await files.look()
    finally:
        threading.stack_size(usual)
    assert knows(files, "first")
    await files.look()
    assert knows(files, "second")
    (told,) = warnings(caplog)
    assert "can't start new thread" in told


async def test_what_breaks_the_watch_is_told_and_its_end_is_not(file):
    """Unnoticed, who is revoked would stay."""

    class Breaking(TokenFiles):
        async def look(self):
            raise ValueError("no such luck")

    told = []
    for kind in (Breaking, TokenFiles):
        files = kind([str(file)])
        watching = files.begin_watching(told.append)
        files.look_now()
        await until(lambda: watching.done() or not files._asked.is_set())  # noqa: B023
        watching.cancel()
        await asyncio.wait([watching])
    assert [str(error) for error in told] == ["no such luck"]


async def test_it_looks_by_itself_now_and_then(file, monkeypatch):
    monkeypatch.setattr(token_files, "LOOK_S", 0.01)
    files = TokenFiles([str(file)])
    watching = asyncio.create_task(files.watch())
    file.write_text(entry("two", "second"))
    await until(lambda: knows(files, "second"))
    watching.cancel()


def test_a_bad_file_at_the_start_is_bad_input(file):
    file.write_text("- x\n")
    with pytest.raises(InputError, match="entry 1: expected a mapping"):
        TokenFiles([str(file)])


def test_what_lasts_ends_when_its_token_is_worth_less():
    """Revoked, of another tenant, or with fewer roles; more of them are no harm."""

    def token(name, tenant, *roles):
        return new_api_token(name, f"secret of {name}", tenant, roles)

    both = Role.READ, Role.OPERATE
    kept = token("kept", "shop", Role.READ)
    held = [kept, token("moved", "shop", *both), token("less", "shop", *both)]
    held += [token("gone", "shop", *both), token("over", "shop", *both)]
    access, ended = Access(ApiTokens(held)), []
    assert all(access.still_knows(one) for one in held)
    with ExitStack() as lasts:
        for one in held[:-1]:
            lasts.enter_context(access.lasting(one, partial(ended.append, one.name)))
        with access.lasting(held[-1], partial(ended.append, "over")):
            pass
        now = [token("kept", "shop", *both), token("moved", "bank", *both)]
        access.go_by(ApiTokens([*now, token("less", "shop", Role.READ)]))
        assert ended == ["moved", "less", "gone"]
    assert [one.name for one in held if access.still_knows(one)] == ["kept"]
    access.go_by(ApiTokens([]))
    assert ended == ["moved", "less", "gone"], "what is over is told nothing more"
