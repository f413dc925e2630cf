"""A fenced sink on Redis: commands and a checkpoint in one script, refused from an older epoch.

Hash `{NAME}:fence`, field = partition, value `epoch|checkpoint`; the checkpoint is any text, empty
until there is one. In a cluster all keys of one `apply` have to share a slot with it: put the
name, in braces, into them. The Redis of the sink need not be the one of the leases.

    sink = RedisSink(redis.Redis(), "orders")
    start = sink.claim(lease)
    sink.apply(lease, ("SET", "{orders}:7", "paid"), ("DEL", "{orders}:6"), checkpoint="42")
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spillover.live.leases.sinks.held import HeldPartition, fenced_by
from spillover.model.errors import InputError

if TYPE_CHECKING:
    from redis import Redis
    from redis.asyncio import Redis as AsyncRedis

Argument = str | bytes | int | float
Command = Sequence[Argument]
"""A command as redis-cli takes it; its first argument is its key, and the only one."""

WORDS_MAX = 7_000
"""The most words of one command. Lua cannot pass on a thousand more; that would end a batch in its
middle."""

# KEYS: the fence, then the key of each command. ARGV: partition, epoch, whether there is a
# checkpoint, the checkpoint, then of each command: how many words it has, and those without the
# key. The answer: {1, checkpoint before, answers} or {0, the later epoch}. Epochs are compared as
# numbers: they stay below 2^53. What a command refuses is raised after those before it were done,
# and before the checkpoint was.
SCRIPT = """
local stored = redis.call('HGET', KEYS[1], ARGV[1])
local seen, checkpoint = string.match(stored or '0|', '^(%d+)|(.*)$')
if tonumber(seen) > tonumber(ARGV[2]) then
  return { 0, seen }
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. '|' .. checkpoint)
local answers, at = {}, 5
for i = 2, #KEYS do
  local words = tonumber(ARGV[at])
  local command = { ARGV[at + 1], KEYS[i] }
  for j = at + 2, at + words do
    command[#command + 1] = ARGV[j]
  end
  local answer = redis.call(unpack(command))
  answers[i - 1] = answer or ''
  at = at + words + 1
end
if ARGV[3] == '1' then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. '|' .. ARGV[4])
end
return { 1, checkpoint, answers }
"""
DIGEST = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()


class RedisSink:
    """A fenced sink for `redis.Redis`; `AsyncRedisSink` does the same for `redis.asyncio.Redis`."""

    def __init__(self, client: Redis, name: str) -> None:
        """Raises InputError for a pipeline."""
        _refuse_pipeline(client)
        self._client = client
        self._fence = fence_key(name)

    def claim(self, lease: HeldPartition) -> str:
        """Shut out all earlier epochs, and the checkpoint that they left; raises Fenced."""
        return _text(self._run(lease, (), None)[1])

    def apply(
        self, lease: HeldPartition, *commands: Command, checkpoint: str | None = None
    ) -> list[Any]:
        """Run the commands and set the checkpoint, all at one instant; what each answered.

        However many they are, the epoch is compared in the one script that does them all: either
        everything is admitted or nothing. Raises Fenced, and InputError for what is no command;
        then nothing was done. An error of a command (a wrong type, say) leaves what stood before it
        done: it is the checkpoint, set last, that tells what is complete.
        """
        answers: list[Any] = self._run(lease, commands, checkpoint)[2]
        return answers

    def _run(
        self, lease: HeldPartition, commands: Sequence[Command], checkpoint: str | None
    ) -> Any:
        from redis.exceptions import NoScriptError  # noqa: PLC0415 - an extra

        lease.check()
        given = _arguments(self._fence, lease, commands, checkpoint)
        try:
            answer = self._client.execute_command("EVALSHA", DIGEST, *given)  # type: ignore[no-untyped-call]
        except NoScriptError:
            lease.check()
            answer = self._client.execute_command("EVAL", SCRIPT, *given)  # type: ignore[no-untyped-call]
        return _admitted(lease, answer)


class AsyncRedisSink:
    """`RedisSink` for coroutines."""

    def __init__(self, client: AsyncRedis, name: str) -> None:
        """Raises InputError for a pipeline."""
        _refuse_pipeline(client)
        self._client = client
        self._fence = fence_key(name)

    async def claim(self, lease: HeldPartition) -> str:
        """Do the same as `RedisSink.claim`."""
        return _text((await self._run(lease, (), None))[1])

    async def apply(
        self, lease: HeldPartition, *commands: Command, checkpoint: str | None = None
    ) -> list[Any]:
        """Do the same as `RedisSink.apply`."""
        answers: list[Any] = (await self._run(lease, commands, checkpoint))[2]
        return answers

    async def _run(
        self, lease: HeldPartition, commands: Sequence[Command], checkpoint: str | None
    ) -> Any:
        from redis.exceptions import NoScriptError  # noqa: PLC0415 - an extra

        lease.check()
        given = _arguments(self._fence, lease, commands, checkpoint)
        try:
            answer = await self._client.execute_command("EVALSHA", DIGEST, *given)  # type: ignore[no-untyped-call]
        except NoScriptError:
            lease.check()
            answer = await self._client.execute_command("EVAL", SCRIPT, *given)  # type: ignore[no-untyped-call]
        return _admitted(lease, answer)


def fence_key(name: str) -> str:
    """Returns where a sink of that name keeps epochs and checkpoints."""
    return f"{{{name}}}:fence"


def _arguments(
    fence: str, lease: HeldPartition, commands: Sequence[Command], checkpoint: str | None
) -> list[Argument]:
    for command in commands:
        if isinstance(command, str | bytes) or not 2 <= len(command) <= WORDS_MAX:
            expected = f"expected sequences of 2 to {WORDS_MAX} words: a command, its key, the rest"
            raise InputError("Redis sink", "commands", expected)
    keys = [command[1] for command in commands]
    given: list[Argument] = [len(keys) + 1, fence, *keys, lease.partition, lease.epoch]
    given += [0, ""] if checkpoint is None else [1, checkpoint]
    for command in commands:
        given += [len(command) - 1, command[0], *command[2:]]
    return given


def _refuse_pipeline(client: Any) -> None:
    """Refuse a pipeline: its commands are sent later than the lease was looked at, and split up it
    may be half admitted. A batch is one `apply`."""
    if hasattr(client, "command_stack") or hasattr(client, "immediate_execute_command"):
        raise InputError("Redis sink", "client", "expected a client, not a pipeline")


def _admitted(lease: HeldPartition, answer: Any) -> Any:
    if answer[0] == 0:
        fenced_by(lease, int(answer[1]))
    return answer


def _text(checkpoint: str | bytes) -> str:
    return checkpoint.decode() if isinstance(checkpoint, bytes) else checkpoint
