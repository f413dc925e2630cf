"""A handler of yours may raise these errors to say how its work came to nothing.

    from spillover.handlers import NotRun, Rejected

    def transcribe(work):
        if gpu_is_lost():
            raise NotRun("the GPU is gone", retry_after_s=5)
        if "audio" not in work:
            raise Rejected("expected the field audio", status=422)

Any exception will do that has the attribute `not_run` or `rejected` with the value True, and the
others of the class below as far as it likes: a handler need not import this module. Any other
exception means that the work failed, and may have been done in part.
"""

from __future__ import annotations

from typing import Any


class NotRun(Exception):
    """The work surely was not done. The request is decided again, here or at another cluster, and
    this cluster gets no more requests for `retry_after_s` seconds (at most 60), if that is
    given."""

    not_run = True

    def __init__(self, problem: str = "", *, retry_after_s: float | None = None) -> None:
        super().__init__(problem)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        return _not_run, (self.args[0], self.retry_after_s)


class Rejected(Exception):
    """The request is at fault. Its client gets `status` (400 to 499), the reason `handler_rejected`
    and `body`, which JSON must be able to hold. The same request under the same name gets the same
    answer, and nothing is held against this cluster."""

    rejected = True

    def __init__(self, problem: str = "", *, status: int = 422, body: Any = None) -> None:
        super().__init__(problem)
        self.status = status
        self.body = body

    def __reduce__(self) -> tuple[Any, ...]:
        return _rejected, (self.args[0], self.status, self.body)


def _not_run(problem: str, retry_after_s: float | None) -> NotRun:
    return NotRun(problem, retry_after_s=retry_after_s)


def _rejected(problem: str, status: int, body: Any) -> Rejected:
    return Rejected(problem, status=status, body=body)
