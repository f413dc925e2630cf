"""What users write, for mypy --strict to look at (pyproject.toml): what is wrong is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from spillover.client import (
    Answer,
    AsyncJob,
    AsyncSpillover,
    Job,
    JobState,
    Progress,
    Refused,
    Retries,
    Spillover,
    SpilloverError,
)


async def payloads() -> AsyncIterator[dict[str, int]]:
    """Some that have to be awaited."""
    for number in range(3):
        yield {"number": number}


def key_of(payload: dict[str, int]) -> str:
    return f"order-{payload['number']}"


def show(progress: Progress) -> None:
    print(progress.done, progress.total)


async def main() -> float:
    async with AsyncSpillover(["http://127.0.0.1:8101"], retries=Retries(share=0.1)) as spillover:
        answer: Answer = await spillover.run({"text": "x"}, key="order-7", deadline_s=5)
        job: AsyncJob = await spillover.submit([1, 2, 3], type="llm", priority=3)
        state: JobState = await spillover.job(job.id, node=job.node).state()
        try:
            answer = await job.result(timeout_s=3.0)
        except Refused as error:
            print(error.reason, error.retry_after_s, error.surely_did_not_run, error.id)
        async for one in spillover.map(payloads(), key=key_of, at_most=2, progress=show):
            print(one.result, one.hops, state)
        async for outcome in spillover.map([1, 2], ordered=False, return_errors=True):
            if isinstance(outcome, SpilloverError):
                print(outcome.surely_did_not_run)
            else:
                print(outcome.path)
        print(spillover.stats.retries, spillover.nodes.current)
    return answer.timing_ms["total"]


def plain() -> str:
    with Spillover("http://127.0.0.1:8101") as spillover:
        job: Job = spillover.submit("x")
        state: JobState = job.cancel()
        names = [answer.id for answer in spillover.map(range(3))]
        spillover.run({}, deadline_s="5")  # type: ignore[arg-type]
        for outcome in spillover.map([1], return_errors=True):
            print(outcome.result)  # type: ignore[union-attr]
        return spillover.run(None).cluster + state + names[0]


if __name__ == "__main__":
    asyncio.run(main())
