"""Files of API tokens that change while a node runs: the last good ones count, and it is told."""

from __future__ import annotations

import asyncio
import logging

import pytest

from spillover.apps.http import token_files
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


def test_a_changed_file_counts_and_a_bad_one_does_not(file, caplog):
    async def check():
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

    with caplog.at_level(logging.INFO):
        asyncio.run(check())
    bad, gone = warnings(caplog)  # each once, however often it is looked at
    assert bad.startswith(f"{file}: line 5, entry 2, sha256: expected")
    assert "found none" in gone


def test_a_file_that_is_renamed_into_place_is_read_whole_or_as_it_was(file, caplog):
    """However often it is replaced while somebody reads it."""
    every = [entry(f"n{i}", f"secret {i}") for i in range(50)]

    async def check():
        files = TokenFiles([str(file)])
        seen = set()
        files.on_change = lambda tokens: seen.add(len(tokens))
        for count in range(1, 51):
            beside = file.with_suffix(".new")
            beside.write_text("".join(every[:count]))
            looking = asyncio.create_task(files.look())
            await asyncio.to_thread(beside.replace, file)
            await looking
        await files.look()
        assert len(files.tokens) == 50
        assert seen <= set(range(1, 51))

    asyncio.run(check())
    assert warnings(caplog) == []


def test_it_looks_when_it_is_told_to_and_says_again_what_is_wrong(file, caplog, monkeypatch):
    monkeypatch.setattr(token_files, "LOOK_S", 60.0)

    async def check():
        files = TokenFiles([str(file)])
        watching = asyncio.create_task(files.watch())
        file.write_text("- x\n")
        for times in (1, 2):
            files.look_now()
            await until(lambda: len(warnings(caplog)) >= times)  # noqa: B023
        watching.cancel()

    asyncio.run(check())
    assert len(set(warnings(caplog))) == 1


def test_it_looks_by_itself_now_and_then(file, monkeypatch):
    monkeypatch.setattr(token_files, "LOOK_S", 0.01)

    async def check():
        files = TokenFiles([str(file)])
        watching = asyncio.create_task(files.watch())
        file.write_text(entry("two", "second"))
        await until(lambda: knows(files, "second"))
        watching.cancel()

    asyncio.run(check())


def test_a_bad_file_at_the_start_is_bad_input(file):
    file.write_text("- x\n")
    with pytest.raises(InputError, match="entry 1: expected a mapping"):
        TokenFiles([str(file)])
