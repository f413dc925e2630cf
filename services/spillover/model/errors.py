"""The errors of Spillover, one small tree that says who is to blame and what surely happened.

SpilloverError
├── InputError         the user's file, option or payload is wrong; exit status 2, one line
├── RunError           the run itself failed; exit status 1, one line
├── PeerError          a call to another process failed
│   ├── NotDelivered   it surely was not accepted there: deciding again is safe
│   │   ├── ConnectTimeout    no connection was opened in time: it may be well, and busy
│   │   ├── NotBelieved       one side does not believe the other's certificate
│   │   ├── Unreachable       none of those that might have taken it could be reached
│   │   ├── Refused           not now: the other side is full, or draining
│   │   │   └── QueueFull     there was no place for an object before its deadline
│   │   └── StoreRefused      the store of the leases said no: read-only, wants a password
│   ├── Rejected       never: what was sent is at fault, says the other side or its handler
│   ├── Failed         the handler failed: it may have run in part
│   ├── Expired        its deadline passed
│   ├── Cancelled      somebody cancelled it
│   ├── OutcomeUnknown bytes had left and no answer came: it may have run
│   │   └── StoreUnreachable  no answer from the store of the leases: later, perhaps
│   └── NotANode       what answered there is something else: the url is wrong
└── GrantLost          an object of a queue may be somebody else's by now: the handler was too late

Refusals between nodes are values, not errors: see `model.request.Refusal`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

UNREADABLE = (ValueError, RecursionError)
"""Decoding raises these for bad JSON, bad fields, bad UTF-8, and what is nested too deep."""


class SpilloverError(Exception):
    """Base of all errors that Spillover raises on purpose."""

    surely_did_not_run = False
    """True where the work surely was not done, nor will be: asking again is safe."""

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles, as process pools send, are made without the arguments of __init__,
        which are not those that Exception keeps."""
        return _made, (type(self), self.args), self.__dict__


def _made(kind: type[SpilloverError], args: tuple[object, ...]) -> SpilloverError:
    return kind.__new__(kind, *args)


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


@contextmanager
def blamed_on(source: str) -> Iterator[None]:
    """Have what is wrong with a value said of the option or the argument that it was given by."""
    try:
        yield
    except InputError as error:
        raise InputError(source, "", error.expected) from None


class RunError(SpilloverError):
    """The run itself failed, for a reason that one line can tell."""


class PeerError(SpilloverError):
    """A call to another process failed."""

    node: str | None = None
    """The url of the node that a client called, where it is known."""
    id: str | None = None
    """The name of the request that a client made, where it is known."""


class NotDelivered(PeerError):
    """The other side surely did not accept the call: nothing of it was or will be done there."""

    surely_did_not_run = True


class ConnectTimeout(NotDelivered):
    """No connection was opened in time. The server may be well, and busy."""


class NotBelieved(NotDelivered):
    """The server answers, and one of the two does not believe the other's certificate."""


class Unreachable(NotDelivered):
    """No server that might have taken the call could be reached."""


class Refused(NotDelivered):
    """The other side does not take the call now; it may after `retry_after_s` seconds."""

    def __init__(self, message: str, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s


class QueueFull(Refused):
    """There was no place for an object before its deadline: its consumers are too slow."""


class Rejected(PeerError):
    """The request itself is at fault, so that sending it again does not help. `body` is what a
    handler said of it. It surely did not run unless its handler found the fault."""

    def __init__(
        self,
        message: str,
        status: int,
        reason: str,
        *,
        body: object = None,
        surely_did_not_run: bool = True,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.body = body
        self.surely_did_not_run = surely_did_not_run


class Failed(PeerError):
    """The handler failed at this request: it may have been done, wholly or in part.
    `upstream_status` and `upstream_body` are the answer of a service behind the node."""

    def __init__(
        self,
        message: str,
        reason: str,
        *,
        upstream_status: int | None = None,
        upstream_body: object = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.upstream_status = upstream_status
        self.upstream_body = upstream_body


class Expired(PeerError):
    """The deadline passed. The request will not run any more; it surely did not where it never
    left."""

    def __init__(self, message: str, *, surely_did_not_run: bool = False) -> None:
        super().__init__(message)
        self.surely_did_not_run = surely_did_not_run


class Cancelled(PeerError):
    """Somebody cancelled the request, perhaps while it ran."""


class OutcomeUnknown(PeerError):
    """The call had left and no answer came back: it may or may not have been carried out."""


class NotANode(PeerError):
    """The server that answered is no node: it is another service, or a page of one in between. The
    url is wrong, or the way to it; the request may or may not have been carried out."""


class StoreRefused(NotDelivered):
    """The store of the leases answered that it will not: it is read-only, wants a password, is
    full, or is not what it should be. Whoever runs it is to blame; trying again seldom helps."""


class StoreUnreachable(OutcomeUnknown):
    """The store of the leases gave no answer in time, or is not ready. A later call can succeed;
    what became of this one is not known, and a holder counts it as not granted."""


class GrantLost(SpilloverError):
    """The grant of an object ended before it was acknowledged: the object goes to another consumer,
    or has gone there. Its work may be done twice."""
