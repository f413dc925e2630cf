"""One renewal of all that a member holds: what is sent, and what the answer means for each lease.

A renewal that found no answer changes nothing: the leases are unknown, not lost, until their
deadline. A lease whose deadline has passed is never renewed again, whatever Redis would say: its
handler may have been told already.
"""

from __future__ import annotations

from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.memory import LeaseMemory
from spillover.live.leases.renewal.plan import RenewalPlan
from spillover.live.leases.renewal.resp import RedisFailed, RespConnection, run_script

Pairs = list[tuple[int, int]]


class Rounds:
    """The renewals of one member, one after another."""

    def __init__(self, plan: RenewalPlan, memory: LeaseMemory) -> None:
        self._plan = plan
        self._memory = memory
        self._connection = RespConnection(
            plan.address, plan.timeout_s, lambda: memory.beat_renewer(lease_now_s())
        )
        self._head = [str(len(plan.keys)).encode(), *(key.encode() for key in plan.keys)]
        self._fixed = [argument.encode() for argument in plan.arguments]
        self._era = plan.era.encode()

    def renew(self, held: Pairs) -> dict[str, object]:
        """Renew these (partition, epoch) and write down what came of it: one message."""
        memory = self._memory
        sent_s = lease_now_s()
        over = {pair for pair in held if memory.deadline_s(*pair) <= sent_s}
        pairs = [pair for pair in held if pair not in over]
        numbers = [b"%d" % number for pair in pairs for number in pair]
        given = [*self._head, self._era, *self._fixed, *numbers]
        message: dict[str, object] = {"sent_s": sent_s}
        try:
            answer = run_script(self._connection, self._plan.script, self._plan.digest, given)
            era, displaced, flags = _read(answer, len(pairs))
        except RedisFailed as failed:
            return message | {"problem": str(failed), "refused": failed.refused}
        self._era = era
        for pair in over:
            memory.lose(*pair)
        flags = self._apply(pairs, flags, sent_s) + "0" * len(over)
        message |= {"era": era.decode(), "displaced": displaced, "flags": flags}
        return message | {"pairs": [*pairs, *over], "took_s": lease_now_s() - sent_s}

    def close(self) -> None:
        self._connection.close()

    def _apply(self, pairs: Pairs, flags: str, sent_s: float) -> str:
        """Write the deadlines. What an answer came too late for is lost."""
        memory = self._memory
        to_s = sent_s + self._plan.lease_s - self._plan.margin_s
        now_s = lease_now_s()
        applied = []
        for (partition, epoch), flag in zip(pairs, flags, strict=True):
            kept = flag != "0" and memory.deadline_s(partition, epoch) > now_s
            if kept:
                memory.renewed(partition, epoch, to_s)
            elif memory.epoch(partition) == epoch:
                memory.lose(partition, epoch)
            applied.append(flag if kept else "0")
        return "".join(applied)


def _read(answer: object, count: int) -> tuple[bytes, bool, str]:
    """{era, displaced, a flag for each pair}, as renew.lua answers. Raises RedisFailed."""
    match answer:
        case [bytes(era), int(displaced), bytes(flags)] if len(flags) == count:
            return era, bool(displaced), flags.decode()
    raise RedisFailed(f"Redis answered a renewal with {answer!r}")
