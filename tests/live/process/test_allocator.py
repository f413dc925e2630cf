"""What the C library is told of memory that was freed."""

import ctypes
import sys

import pytest

from spillover.live.process.allocator import GIVEN_BACK_BYTES, FreedMemory, keep_freed_memory

MIB = 2**20
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""As <malloc.h> has them."""


class CLibrary:
    """Notes what it is told, and says what a test has it say."""

    def __init__(self, *refused):
        self.told = []
        self._refused = refused

    def mallopt(self, option, value):
        self.told.append((option, value))
        return int(option not in self._refused)

    def malloc_trim(self, kept_bytes):
        self.told.append(kept_bytes)
        return 1


@pytest.fixture
def having(monkeypatch):
    """Have this for the C library of Linux."""

    def have(library):
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
        return library

    return have


def test_freed_memory_is_kept_for_what_comes_next_and_large_blocks_are_not(having):
    """16 MiB; blocks of 4 MiB and more are the system's."""
    library = having(CLibrary())
    assert keep_freed_memory() is True
    assert library.told == [(TRIM_THRESHOLD, 16 * MIB), (MMAP_THRESHOLD, 4 * MIB)]


@pytest.mark.parametrize("refused", [(TRIM_THRESHOLD,), (MMAP_THRESHOLD,)])
def test_whether_that_could_be_had_is_told(having, refused):
    having(CLibrary(*refused))
    assert keep_freed_memory() is False


def test_another_c_library_knows_nothing_of_it(having, monkeypatch):
    library = having(object())
    assert keep_freed_memory() is False
    freed = FreedMemory()
    freed.note(GIVEN_BACK_BYTES)
    assert freed.give_back(0, 10.0) is False
    library = having(CLibrary())
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False
    assert library.told == []


def test_after_a_flood_all_that_is_free_is_given_back_but_for_what_is_kept(having):
    """Much less must be held than at most before."""
    library = having(CLibrary())
    freed = FreedMemory()
    freed.note(GIVEN_BACK_BYTES + 5)
    freed.note(7)
    assert (freed.give_back(6, 10.0), library.told) == (False, [])
    assert (freed.give_back(5, 10.0), library.told) == (True, [16 * MIB])
    assert freed.most_bytes == 5
