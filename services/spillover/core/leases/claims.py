"""The partitions that a member wants: steps 1 to 5 from its side, by the guarded rule.

A survey says what is free, what is elsewhere, and how the counts or loads stand. What is free is
shared out in thought, each to whom it evens out most (`core.leases.shares`): every member does this
from the same figures, so that each challenges its own part, and hundreds that start at once do not
all run for everything. From living holders it challenges what the store would grant. It challenges
nothing that cannot succeed, and races for no more than its own share, also where another one
challenges.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from spillover.core.leases import events as ev
from spillover.core.leases.agenda import MemberAgenda
from spillover.core.leases.holdings import Holdings
from spillover.core.leases.records import Activation, Survey
from spillover.core.leases.shares import shares_of
from spillover.policy.leases import spread_wait_ms

GRAB_WORK_MAX = 500_000
"""For each grab the store counts the whole group. A member asks for no more at once than makes the
store look at so many partitions (a fraction of a second): else thousands of grabs wait in line, and
surveys and activations behind them, until nobody waits for their answers any more."""


class Stage(Enum):
    """How far a claim has come."""

    WAITING = "waiting"
    """Step 2."""
    GRABBING = "grabbing"
    """Step 3: the store is asked."""
    WON = "won"
    """Step 4: to be activated as soon as it is free."""


@dataclass(slots=True)
class Claim:
    """One partition that this member wants."""

    partition: int
    stage: Stage
    number: int = 0
    """The number of the ask whose answer counts."""


class Claims:
    """The claims of this member, by partition."""

    def __init__(self, agenda: MemberAgenda, holdings: Holdings) -> None:
        self._agenda = agenda
        self._holdings = holdings
        self._shares = shares_of(agenda, holdings)
        self.claims: dict[int, Claim] = {}
        self.open = False
        """True while partitions may be claimed: not before joining, not while leaving."""
        self.missed = False
        """True where a free partition has been missed, so that a survey would help."""
        self._seen_free_s: dict[int, float] = {}
        """The instant since which each free partition has been seen free, by this member's own
        clock."""
        self._surveyed = 0
        self._unanswered: set[int] = set()
        """Partitions whose activation was asked for, and no epoch has come."""

    # --- step 1: what to challenge -------------------------------------------------------------

    def surveyed(self, ask: ev.AskSurvey, survey: Survey, now_s: float) -> None:
        if ask.number <= self._surveyed or not self.open:
            return
        self._surveyed = ask.number
        for partition in survey.mine:
            self._won(partition, now_s)
        self._give_back_unheard(survey, now_s)
        free = {p: self._seen_free_s.get(p, now_s) for p in survey.free}
        self._seen_free_s = free
        self._shares.surveyed(survey)
        if self._agenda.node not in survey.standing.held:
            return
        challenged = self._challenge(self._own_part(survey, now_s), now_s)
        wanted = self._shares.from_holders(survey, self._racing)
        challenged += self._challenge(wanted, now_s)
        if challenged:
            self._agenda.command(ev.PublishChallenge(challenged))

    def _give_back_unheard(self, survey: Survey, now_s: float) -> None:
        """Give back partitions that were granted in an answer that got lost, or fenced because the
        answers of renewals got lost. These are only partitions that this process has asked for: an
        earlier one of the same id may still serve what it had."""
        self._unanswered &= self.claims.keys() | {partition for partition, _ in survey.own}
        for partition, epoch in survey.own:
            if partition in self.claims:
                continue
            if partition in self._unanswered:
                self._unanswered.discard(partition)
                self._holdings.give_back(partition, epoch, now_s, now_s)
            else:
                self._holdings.release_again(partition, epoch, now_s)

    def _own_part(self, survey: Survey, now_s: float) -> list[int]:
        """Returns free partitions that fall to this member, and a part of those that nobody has
        taken for long."""
        agenda = self._agenda
        mine = self._shares.own_part(survey, self._seen_free_s)
        others = self._seen_free_s.keys() - set(mine)
        stuck = [
            partition
            for partition, since_s in self._seen_free_s.items()
            if partition in others and now_s - since_s >= agenda.normal_s
        ]
        chosen = -(-len(stuck) // len(survey.standing.held))
        return mine + agenda.random.sample(stuck, chosen)

    def _challenge(self, partitions: Iterable[int], now_s: float) -> list[int]:
        """Returns those that may be claimed, to be published. The next survey is for the rest."""
        claimed: list[int] = []
        room = self._room
        for partition in partitions:
            if self._may_claim(partition, now_s):
                if len(claimed) == room:
                    self.missed = True
                    break
                self._agenda.tell(ev.CHALLENGED, partition)
                self._wait(partition, now_s)
                claimed.append(partition)
        return claimed

    @property
    def _room(self) -> int:
        """How many more may be raced for at once."""
        at_once = max(1, GRAB_WORK_MAX // self._agenda.partitions)
        return max(0, at_once - len(self._racing))

    @property
    def _racing(self) -> list[int]:
        """Claims that do not stand in the store yet."""
        return [p for p, claim in self.claims.items() if claim.stage is not Stage.WON]

    def _may_claim(self, partition: int, now_s: float) -> bool:
        holdings = self._holdings
        return (
            self.open
            and 0 <= partition < self._agenda.partitions
            and partition not in self.claims
            and not holdings.serves(partition)
            and not holdings.stays_away(partition, now_s)
        )

    # --- steps 2 and 3: wait and grab ----------------------------------------------------------

    def challenged(self, partition: int, now_s: float) -> None:
        """Somebody challenges: race too, if that may succeed."""
        has_room = self._shares.has_room(partition, self.claims)
        if has_room and self._may_claim(partition, now_s) and self._room:
            self._wait(partition, now_s)

    def _wait(self, partition: int, now_s: float) -> None:
        times = self._agenda.times
        weight = self._shares.weight()
        wait_ms = spread_wait_ms(weight, times.held_delay_ms, times.longest_wait_ms)
        claim = self.claims[partition] = Claim(partition, Stage.WAITING)
        self._agenda.at(now_s + wait_ms / 1000.0, self._grab, claim)

    def _grab(self, claim: Claim, now_s: float) -> None:
        if self.claims.get(claim.partition) is not claim or claim.stage is not Stage.WAITING:
            return
        free_for_s = now_s - self._seen_free_s.get(claim.partition, now_s)
        claim.stage = Stage.GRABBING
        ask = self._agenda.ask(ev.AskGrab, now_s, claim.partition, free_for_s * 1000.0)
        claim.number = ask.number
        self._agenda.at(now_s + self._agenda.normal_s, self._give_up, claim, ask.number)

    def _give_up(self, claim: Claim, number: int, now_s: float) -> None:
        """Give up a claim without an answer for long: if it was won after all, a survey will say
        so."""
        del now_s
        if self.claims.get(claim.partition) is claim and claim.number == number:
            del self.claims[claim.partition]

    def grabbed(self, ask: ev.AskGrab, granted: object, now_s: float) -> None:
        claim = self._asked(ask.partition, ask.number)
        if claim is None:
            return
        del self.claims[ask.partition]
        if granted is True:
            self._agenda.tell(ev.GRABBED, ask.partition)
            self._won(ask.partition, now_s)
        else:
            self.missed = self.missed or ask.partition in self._seen_free_s

    # --- steps 4 and 5: wait until it is free, and activate ------------------------------------

    def _won(self, partition: int, now_s: float) -> None:
        if partition in self._holdings.held:
            return  # the survey was made before it was activated
        claim = self.claims.get(partition)
        if claim is None or claim.stage is not Stage.WON:
            claim = self.claims[partition] = Claim(partition, Stage.WON)
            limit_s = now_s + self._agenda.times.grab_limit_ms / 1000.0
            self._agenda.at(limit_s, self._forget, claim)
        self._activate(claim, now_s)

    def _forget(self, claim: Claim, now_s: float) -> None:
        """The mark in the store is over."""
        del now_s
        if self.claims.get(claim.partition) is claim:
            del self.claims[claim.partition]

    def allocated(self, partition: int, now_s: float) -> bool:
        """Takes the message that a partition was allocated to this member, and returns whether it
        was waited for here.
        """
        claim = self.claims.get(partition)
        if claim is None or claim.stage is not Stage.WON:
            return False
        self._activate(claim, now_s)
        return True

    def _activate(self, claim: Claim, now_s: float) -> None:
        """Ask for it; and again after the longest that a handler may take to stop. While a fenced
        handler of it still runs here, it is not asked for."""
        if self._holdings.serves(claim.partition):
            return
        self._unanswered.add(claim.partition)
        ask = self._agenda.ask(ev.AskActivate, now_s, claim.partition)
        claim.number = ask.number
        self._activate_at(now_s + self._agenda.max_shutdown_s, claim)

    def _activate_at(self, due_s: float, claim: Claim) -> None:
        self._agenda.at(due_s, self._activate_again, claim, claim.number)

    def _activate_again(self, claim: Claim, number: int, now_s: float) -> None:
        if self.claims.get(claim.partition) is claim and claim.number == number:
            self._activate(claim, now_s)

    def activated(self, ask: ev.AskActivate, answer: Activation, now_s: float) -> None:
        """An epoch counts, whoever still waits for it; else the claim goes on or is over."""
        claim = self._asked(ask.partition, ask.number)
        if answer.epoch is not None:
            if answer.epoch <= self._holdings.epochs.get(ask.partition, -1):
                return  # the answer has come twice
            self._unanswered.discard(ask.partition)
            wanted = self.claims.pop(ask.partition, None) is not None
            self._seen_free_s.pop(ask.partition, None)
            take = self._holdings.start if wanted and self.open else self._holdings.give_back
            take(ask.partition, answer.epoch, ask.sent_s, now_s)
        elif claim is None:
            return
        elif answer.free_in_ms <= 0.0:
            del self.claims[ask.partition]
        elif answer.free_in_ms < self._agenda.times.max_shutdown_ms:
            self._activate_at(now_s + answer.free_in_ms / 1000.0, claim)

    def failed(self, ask: ev.AskGrab | ev.AskActivate) -> None:
        """Drop the claim of an ask that failed, carried out or not: a survey shows a win, and grabs
        that still hold."""
        if isinstance(ask, ev.AskGrab) and self._asked(ask.partition, ask.number) is not None:
            del self.claims[ask.partition]

    def _asked(self, partition: int, number: int) -> Claim | None:
        """The claim whose ask that was; None if it is over, or another ask counts."""
        claim = self.claims.get(partition)
        return claim if claim is not None and claim.number == number else None

    # --- the end -------------------------------------------------------------------------------

    def close(self, now_s: float) -> None:
        """Claim nothing more. What is won already is taken if it comes free within the shutdown
        time, and given back at once, so that its mark does not keep others away."""
        self.open = False
        for partition, claim in list(self.claims.items()):
            if claim.stage is Stage.WON:
                self._agenda.at(now_s + self._agenda.max_shutdown_s, self._forget, claim)
            else:
                del self.claims[partition]

    def drop(self) -> None:
        self.open = False
        self.claims.clear()
