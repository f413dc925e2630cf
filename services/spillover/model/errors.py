"""The errors of Spillover, one small tree that says who is to blame and what surely happened.

SpilloverError
├── InputError         the user's file, option or payload is wrong; exit status 2, one line
├── RunError           the run itself failed; exit status 1, one line
└── PeerError          a call to another process failed
    ├── NotDelivered   it surely was not accepted there: deciding again is safe
    │   └── StoreRefused      the store of the leases said no: read-only, wants a password
    └── OutcomeUnknown bytes had left and no answer came: it may have run
        └── StoreUnreachable  no answer from the store of the leases: later, perhaps

Refusals between nodes are values, not errors: see `model.request.Refusal`.
"""


class SpilloverError(Exception):
    """Base of all errors that Spillover raises on purpose."""


class InputError(SpilloverError):
    """Bad input, told in one line: where it stands, which field, what was expected.

    `source` is a file name or an option; `field` is a path such as `clusters[1].servers`, empty
    when the whole source is at fault; `expected` says what would have been right.
    """

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


class OutcomeUnknown(PeerError):
    """The call had left and no answer came back: whether it was carried out is not known."""


class StoreRefused(NotDelivered):
    """The store of the leases answered that it will not: it is read-only, wants a password, is
    full, or is not what it should be. Whoever runs it is to blame; trying again seldom helps."""


class StoreUnreachable(OutcomeUnknown):
    """The store of the leases gave no answer in time, or is not ready. A later call can succeed;
    what became of this one is not known, and a holder counts it as not granted."""
