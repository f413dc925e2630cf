"""Every message that peers tell each other is read or refused by its own error, whatever is in its
place. Each that is declared is tried."""

import os
from functools import partial
from types import SimpleNamespace

import pytest

from spillover.apps.http.problems import Problem
from spillover.apps.queue import asked
from spillover.live.http1.known_heads import Known
from spillover.live.membership import session_wire
from spillover.live.membership import wire as membership
from spillover.live.overflow import passed_wire, report_lines, wire
from spillover.live.queue import client_wire, directory
from spillover.live.queue import wire as queue
from spillover.model.errors import InputError
from spillover.model.passed import PassedHead
from support.fuzzed import Fuzzed, declared_in

SEED = os.environ.get("SPILLOVER_SEED", "1")
USUAL = "3000" if "SPILLOVER_SOAK_S" in os.environ else "1500"
COUNT = int(os.environ.get("SPILLOVER_MESSAGES", USUAL)) // 10
HEAD = PassedHead(200, b"OK", ()).encode()


def behind_head(told):
    return passed_wire.decode_head(len(told).to_bytes(4, "big") + told + HEAD, Known())


def answered(read):
    """Of an answer, whose body is the message."""
    return lambda told: read(SimpleNamespace(body=told))


READERS = {
    report_lines.ReportLine: report_lines.decode_line,
    report_lines.AskLine: report_lines.decode_line,
    report_lines.GroupBody: None,
    wire.LoadBody: wire.decode_load,
    wire.RanBody: None,
    wire.ForwardBody: wire.decode_forward,
    wire.AnswerBody: wire.decode_answer,
    wire.CancelBody: wire.decode_cancel,
    wire.CancelAnswer: wire.decode_cancel_answer,
    wire.RefusedBody: wire.decode_refused,
    wire.BrokenBody: wire.decode_broken,
    passed_wire.HeadBody: behind_head,
    membership.StampBody: None,
    membership.ConfigurationBody: partial(
        membership.decode_configuration, source="peer", federation="test"
    ),
    session_wire._ServerBody: None,
    session_wire._Line: session_wire.decode_line,
    session_wire._PartingLine: session_wire.decode_line,
    queue.ProbeBody: queue.decode_probe,
    queue.OfferBody: queue.decode_offer,
    queue.TakenBody: queue.decode_taken,
    asked.TakeBody: partial(asked.read_body, model=asked.TakeBody),
    asked.ExtendBody: partial(asked.read_body, model=asked.ExtendBody),
    asked.NackBody: partial(asked.read_body, model=asked.NackBody),
    client_wire._TakeBody: None,
    client_wire._NackBody: None,
    client_wire._ProblemBody: answered(client_wire._problem_of),
    client_wire._CreatedBody: answered(client_wire.read_created),
    directory._StateBody: answered(partial(directory._state_of, "http://a")),
}
"""None: a part of others, or what is said and not read there."""
ERRORS = (
    *(wire.MalformedMessage, queue.MalformedMessage, session_wire.MalformedLine),
    *(client_wire.NoProducer, InputError, Problem),
)


def test_every_declared_message_is_tried():
    modules = (report_lines, wire, passed_wire, membership, session_wire, queue, asked)
    assert set(declared_in(*modules, client_wire, directory)) == set(READERS)


@pytest.mark.parametrize("kind", [kind for kind, read in READERS.items() if read is not None])
def test_what_is_no_message_is_refused_as_such(kind):
    fuzz, read, taken = Fuzzed(f"{SEED} {kind.__name__}", ("a", "b")), READERS[kind], 0
    for _ in range(COUNT):
        message = fuzz.message(kind)
        try:
            read(message)
        except ERRORS:
            continue
        except Exception as error:
            error.add_note(f"SPILLOVER_SEED={SEED}: {message[:2000]!r}")
            raise
        taken += 1
    assert taken > COUNT // 20 or kind is membership.ConfigurationBody
