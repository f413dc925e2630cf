"""Nodes through which requests pass, whose answers the test writes as they go: what a service
behind a cluster would do, without one.
"""

from spillover.core.overflow import events as ev
from spillover.live.overflow.shell import NodeShell
from spillover.model.passed import PassedHead, PassedRequest
from spillover.model.request import DONE, FAILED, Outcome, Request

HEAD = PassedHead(200, b"OK", ((b"Content-Type", b"text/event-stream"),))


class Told:
    """A sink that writes down what it is told."""

    def __init__(self):
        self.told = []
        self.head = self.so_far = self.flow = None
        self.pieces = []

    def begin(self, head, so_far, flow):
        assert self.head is None
        self.head, self.so_far, self.flow = head, so_far, flow

    def piece(self, data):
        assert self.head is not None
        assert not self.told, "a piece after the end"
        self.pieces.append(data)

    def end(self, trailers, answer):
        assert self.head is not None
        self.told.append(("end", trailers, answer))

    def break_off(self, answer):
        assert self.head is not None
        self.told.append(("broken", answer))

    def settle(self, told):
        assert self.head is None
        self.told.append(("settled", told))

    @property
    def body(self):
        return b"".join(self.pieces)

    @property
    def how(self):
        """How it came to an end, which it does once; None while it has not."""
        assert len(self.told) <= 1
        return self.told[0][0] if self.told else None


class Service:
    """One request that runs, and the source of its answer."""

    def __init__(self, workers, command):
        self._workers = workers
        self.ref = command.ref
        self.name = command.request.id
        self.request = PassedRequest.decode(command.request.work)
        self.relay = None
        self.is_paused = False
        self.how = None

    def begin(self, head=HEAD):
        began = ev.ResponseBegan(self.ref, 0.001)
        self.relay = self._workers.shell.requests.relays.begin(began, self, head)

    def whole(self, body, head=HEAD, trailers=()):
        """All of it at once."""
        self._workers.shell.requests.relays.whole(
            ev.ResponseBegan(self.ref, 0.001), head, body, trailers
        )
        self._end(DONE)

    def piece(self, data):
        self.relay.piece(data)

    def end(self, trailers=()):
        self.relay.end(trailers)
        self._end(DONE)

    def fail(self, problem="it broke", cause=None):
        self._end(FAILED, problem, cause)

    def _end(self, outcome, problem=None, cause=None):
        if self.how is None:
            self.how = outcome
            del self._workers.running[self.ref]
            ended = ev.ServiceEnded(self.ref, outcome, 0.01, problem=problem, cause=cause)
            self._workers.shell.feed(ended)

    def pause(self):
        self.is_paused = True

    def resume(self):
        self.is_paused = False

    def close(self, problem):
        self.fail(problem)

    def stop(self):
        self._end(Outcome.CANCELLED)


class ScriptedWorkers:
    """The servers of one cluster: `running` has what runs, by ref, `services` all that ever did."""

    def __init__(self, shell):
        self.shell = shell
        self.running = {}
        self.services = []

    def problem_with(self, _):
        return None

    def start(self, command):
        service = self.running[command.ref] = Service(self, command)
        self.services.append(service)

    def stop(self, ref):
        if ref in self.running:
            self.running[ref].stop()

    async def close(self):
        self.running.clear()


class ScriptedShell(NodeShell):
    """A node with such servers."""

    def _make_workers(self, _):
        return ScriptedWorkers(self)


def passed(body=b"{}", target=b"/v1/chat"):
    """A request as a door would make it."""
    return PassedRequest("POST", target, ((b"Host", b"x"),), body)


def take(shell, sink, *, name="", body=b"{}", timeout_s=30.0):
    """Have a client's request taken."""
    work = passed(body).encode()
    request = Request(name, bool(name), work, size_bytes=len(work))
    return shell.requests.home.take_passed(request, shell.now_s + timeout_s, sink)
