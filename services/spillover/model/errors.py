"""The errors of Spillover, one small tree that says who is to blame and what surely happened.

SpilloverError
├── InputError         the user's file, option or payload is wrong; exit status 2, one line
├── RunError           the run itself failed; exit status 1, one line
├── PeerError          a call to another process failed
│   ├── NotDelivered   it surely was not accepted there: deciding again is safe
│   │   ├── Unreachable       none of those that might have taken it could be reached
│   │   ├── Refused           not now: the other side is full, or draining
│   │   │   └── QueueFull     there was no place for an object before its deadline
│   │   ├── Rejected          never: what was sent is at fault
│   │   └── StoreRefused      the store of the leases said no: read-only, wants a password
│   └── OutcomeUnknown bytes had left and no answer came: it may have run
│       └── StoreUnreachable  no answer from the store of the leases: later, perhaps
└── GrantLost          an object of a queue may be somebody else's by now: the handler was too late

Refusals between nodes are values, not errors: see `model.request.Refusal`.
"""


class SpilloverError(Exception):
    """Base of all errors that Spillover raises on purpose."""

    surely_did_not_run = False
    """Whether what was asked for surely was not done, nor will be: asking again is safe."""


class InputError(SpilloverError):
    """Bad input, told in one line: where it stands, which field, what was expected.

    `source` is a file name or an option; `field` is a path such as `clusters[1].servers`, empty
    when the whole source is at fault; `expected` says what would have been right.
    """

    surely_did_not_run = True

    def __init__(self, source: str, field: str, expected: str) -> None:
        self.source = source
        self.field = field
        self.expected = expected
        where = f"{source}: {field}" if field else source
        super().__init__(f"{where}: {expected}")


class RunError(SpilloverError):
    """The run itself failed, for a reason that one line can tell."""


class PeerError(SpilloverError):
    """A call to another process failed."""


class NotDelivered(PeerError):
    """The other side surely did not accept the call: nothing of it was or will be done there."""

    surely_did_not_run = True


class Unreachable(NotDelivered):
    """None of those that might have taken the call could be reached."""


class Refused(NotDelivered):
    """The other side does not take the call now; `retry_after_s` later it may."""

    def __init__(self, message: str, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s


class QueueFull(Refused):
    """There was no place for an object before its deadline: its consumers are too slow."""


class Rejected(NotDelivered):
    """The other side will never take the call: what was sent is at fault."""

    def __init__(self, message: str, status: int, reason: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class OutcomeUnknown(PeerError):
    """The call had left and no answer came back: whether it was carried out is not known."""


class StoreRefused(NotDelivered):
    """The store of the leases answered that it will not: it is read-only, wants a password, is
    full, or is not what it should be. Whoever runs it is to blame; trying again seldom helps."""


class StoreUnreachable(OutcomeUnknown):
    """The store of the leases gave no answer in time, or is not ready. A later call can succeed;
    what became of this one is not known, and a holder counts it as not granted."""


class GrantLost(SpilloverError):
    """The grant of an object ended before it was acknowledged: the object goes to somebody else,
    or has gone there. What was done for it may be done twice."""
