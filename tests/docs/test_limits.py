"""The numbers that documents state, and those that the code goes by: how much there may be of what,
and how long is waited. Who runs a node at night goes by the page.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spillover.apps.http import connection as http_connection
from spillover.apps.http import exchange as http_exchange
from spillover.apps.http import half_closed, lingering, token_files
from spillover.apps.http.service import Bounds
from spillover.apps.lease import server as lease_server
from spillover.apps.node import (
    answers,
    door_pages,
    federation,
    preferences,
    repeats,
    request_routes,
)
from spillover.client import async_client, calls, job, mapping, nodes, retrying, session
from spillover.client import wire as client_wire
from spillover.core.hosts import answers as known
from spillover.core.hosts import race
from spillover.live.engine import moving, write_batch
from spillover.live.handlers import calls as handler_calls
from spillover.live.handlers import service_payload
from spillover.live.handlers.dask import call as dask_call
from spillover.live.handlers.dask import connection as dask
from spillover.live.handlers.dask import session as dask_session
from spillover.live.handlers.http import upstreams
from spillover.live.handlers.proxy import exchange, framing, heads
from spillover.live.handlers.proxy import handler as proxy
from spillover.live.handlers.python import handler as python_handler
from spillover.live.handlers.python import processes
from spillover.live.http import (
    blocking,
    connection,
    known_heads,
    opening,
    outgoing,
    securing,
    small_reads,
)
from spillover.live.http import client as http_client
from spillover.live.leases import hints, report
from spillover.live.leases import store as lease_store
from spillover.live.leases.renewal import child, guard, settings, spawn, supervisor
from spillover.live.leases.sinks import redis_sink
from spillover.live.leases.streams import client as stream_client
from spillover.live.leases.streams import reader, reading, steps, writer
from spillover.live.membership import clients as session_clients
from spillover.live.membership import session_wire
from spillover.live.membership import store as config_store
from spillover.live.membership import wire as config_wire
from spillover.live.overflow import (
    agreement,
    ending,
    identity,
    passed_back,
    passed_wire,
    peer_clients,
    peer_link,
    protocol,
    recent,
    relay,
    report_repeats,
    report_streams,
    waiters,
    wire,
)
from spillover.live.overflow.tracing import visits, watching
from spillover.live.process import (
    allocator,
    line_writer,
    listening,
    logs,
    memory_limit,
)
from spillover.live.queue import (
    bodies,
    certified,
    consumer_shell,
    held,
    history,
    producing,
    shell,
    store,
    work,
)
from spillover.live.queue import (
    client_wire as queue_client_wire,
)
from spillover.live.queue import wire as queue_wire
from spillover.live.redis import connection as redis
from spillover.live.tls import contexts, handshakes, material, pem_files, rotation, unbelieved
from spillover.model.request import NAME_LENGTH_MAX, TYPE_LENGTH_MAX
from spillover.policy import reach, reuse

DOCUMENTS = Path(__file__).parents[2] / "services"
KIB, MIB, GIB = 2**10, 2**20, 2**30
WORDS = {0.25: "quarter", 0.5: "half", 3: "three", 4: "four", 10: "ten"}


def number(count):
    return f"{int(count):,}".replace(",", " ")


def s(*times_s):
    """As `5 s`, or `0.1 s, up to 5 s`."""
    return ", up to ".join(f"{one:g} s" for one in times_s)


def ms(time_s):
    return f"{time_s * 1e3:g} ms"


def kib(count):
    assert count % KIB == 0
    return f"{count // KIB} KiB"


def mib(count):
    assert count % MIB == 0
    return f"{count // MIB} MiB"


RETRIES, BOUNDS = retrying.Retries(), Bounds()
_, *LATER_S = half_closed.BEGUN_AT_S
_SOON = ", ".join(f"{one * 1e3:g}" for one in LATER_S if one < 1.0)
_LATE = ", ".join(f"{one:g}" for one in LATER_S if one >= 1.0)
BEGUN = " and ".join(f"{_SOON} ms, {_LATE}".rsplit(", ", 1))

SAID = {
    "decisions/0003-hot-paths.md": [
        f"at most {known_heads.KNOWN_MAX} heads of {kib(known_heads.HEAD_BYTES_MAX)}, none",
    ],
    "decisions/0007-bounds.md": [
        f"| clients that wait for one name | {number(waiters.WAITERS_MAX)} |",
        f"| how long a client may wait by `wait_ms` or `Prefer: wait` | {s(job.WAIT_S_MAX)} |",
        f"| cancels under way to a neighbor | {peer_clients.CANCELS_AT_ONCE_MAX}, each",
        (
            f"| head of a request, trailers | {kib(framing.HEAD_LIMIT_BYTES)}, {s(BOUNDS.head_s)} "
            "from its first byte |"
        ),
        f"| a connection that says nothing, before its first request too | {s(BOUNDS.idle_s)} (",
        f"whole, or {BOUNDS.body_bytes_per_s:g} bytes/s of it, over each {s(BOUNDS.body_s)} |",
        f"under a key that is under way | {s(repeats.KEY_WAIT_S)};",
        f"remembers of pages in browsers | {door_pages.KEPT_MAX} origins",
        f"up to {mib(http_exchange.DISCARD_LIMIT_BYTES)} more is read and thrown away",
        f"behind the answer for {s(lingering.LINGER_S)} more, {s(lingering.QUIET_S)} without",
        f"of which its client reads nothing | {s(BOUNDS.unread_s)} |",
        f"| names, types | {NAME_LENGTH_MAX}, {TYPE_LENGTH_MAX} characters |",
        (
            f"| federation queries remembered | {number(federation.QUERIES_MAX)} for "
            f"{s(federation.REMEMBERED_S)} |"
        ),
        f"| result of a handler | {mib(handler_calls.RESULT_LIMIT_BYTES)} |",
        f"| streams per neighbor | {report_streams.STREAMS_PER_NEIGHBOR_MAX} |",
        (
            "| connections to a neighbor | `away_limit` + "
            f"{peer_clients.CANCELS_AT_ONCE_MAX + peer_clients.CONNECTIONS_SPARE} |"
        ),
        f"{WORDS[1 / memory_limit.HELD_SHARE]} of what the process may take, at least",
        f"at least {mib(memory_limit.HELD_BYTES_MIN)}: the least of",
        f"in steps of a {moving.STEPS}th of the limit",
        # Between nodes.
        (
            f"opened ahead of need | {peer_link.CONNECTIONS_WARM} to a neighbor, "
            f"{http_client.WARM_AT_ONCE} at a time |"
        ),
        f"with TLS to a neighbor or a peer | {peer_clients.CONNECTIONS_TLS_MAX} |",
        (
            f"at once to one neighbor | {securing.HANDSHAKES_AT_ONCE}, "
            f"each of {s(contexts.HANDSHAKE_S)} |"
        ),
        f"handshakes of one turn of the loop | {handshakes.STEPS_PER_TURN} steps |",
        f"in one frame | {kib(passed_wire.MESSAGE_LIMIT_BYTES)} |",
        (
            f"on an emulated link | {number(passed_back.FRAMES_MAX)}, and "
            f"{kib(passed_back.UNSENT_MAX_BYTES)} until {kib(passed_back.UNSENT_RESUME_BYTES)} are"
        ),
        f"says it speaks | {protocol.TOLD_MAX} |",
        f"fields of a hello | {identity.FIELDS_MAX} |",
        f"names of a certificate that errors tell | {identity.NAMES_TOLD_MAX} |",
        (f"that were turned away | {identity.TURNED_AWAY_MAX}, for {s(identity.TURNED_AWAY_S)} |"),
        f"in the log | {agreement.TOLD_MAX} within {s(agreement.TOLD_WITHIN_S)} |",
        (
            f"of a session; a configuration | {mib(session_wire.LINE_LIMIT_BYTES)}; "
            f"{mib(config_wire.LIMIT_BYTES)} |"
        ),
        f"of a traced visit | {visits.RECORDS_MAX} attempts |",
        # Handlers and services.
        (
            f"a rejection or a failure | {kib(handler_calls.SAID_LIMIT_BYTES)}; behind Dask "
            f"{kib(dask_call.SAID_BYTES_MAX)}; of an exception {handler_calls.PROBLEM_LENGTH_MAX} "
        ),
        f"to an upstream | 2 for each server, and {number(upstreams.CONNECTIONS_SPARE)}",
        f"of a chunk | {framing.FIELDS_MAX}; {framing.CHUNK_LINE_MAX_BYTES} bytes |",
        f"digits of a length | {heads.LENGTH_DIGITS_MAX} |",
        f"interim answers to one request | {exchange.INTERIM_MAX} |",
        f"beside the servers (`unqueued`) | {proxy.UNQUEUED_MAX} |",
        f"of a request to one service | {outgoing.SENDINGS_MAX}: once,",
        f"whether a service closes them | {reuse.RESTING_MAX} after each of",
        f"a connection to a service | {s(upstreams.AGE_S_MAX)} or {number(reuse.USES_MAX)}",
        f"any other idle connection of a client | {s(reuse.IDLE_S_MAX)} |",
        f"or of a client | {s(reuse.AGE_S_MAX)} or {number(reuse.USES_MAX)} requests",
        f"while it answers others | {s(reach.SILENT_S)}; {s(reach.REFUSING_S)} | down",
        # Producers and consumers.
        (
            f"| stories of objects and probes | {number(history.STORIES_MAX)}, each of "
            f"{history.RECORDS_MAX} records |"
        ),
        f"in one transaction of the store | {store.BATCH_MAX} |",
        f"whose forgetting waits for a disk | {number(store.OWED_MAX)} |",
        f"producers in access probabilities | {number(queue_wire.PRODUCERS_MAX)} |",
        f"an id of a producer | {queue_wire.ID_LENGTH_MAX} characters |",
        # Lease members.
        f"at once | {redis.CONNECTIONS_MAX}; a stream's {stream_client.CONNECTIONS_MAX} |",
        f"renewing process has to say | {number(child.UNSAID_MAX)} lines |",
        f"of a stream | {reading.BATCH_RECORDS} records, {mib(reading.BATCH_BYTES)} |",
        (
            f"records set aside | {number(reading.ASIDE_RECORDS)} for each partition, of "
            f"{number(reading.ASIDE_FIELDS_MAX)} fields |"
        ),
        f"that is set aside | {number(reading.ERROR_BYTES_MAX)} bytes |",
        f"of one fenced command | {number(redis_sink.WORDS_MAX)} |",
        # Processes.
        f"| kinds of log lines told apart | {number(logs.KINDS_MAX)} |",
        (
            f"wait for standard output | {number(line_writer.LINES_MAX)}, and "
            f"{s(line_writer.CLOSE_S)} at the end |"
        ),
        f"nobody has accepted yet | {number(listening.BACKLOG)} |",
        (
            f"one of CAs from elsewhere | {mib(pem_files.FILE_BYTES_MAX)}; "
            f"{mib(pem_files.BUNDLE_BYTES_MAX)} |"
        ),
        f"names being looked up | {known.LOOKUPS_MAX}; {known.FAILING_MAX} whose last",
        f"addresses of one | {number(known.NAMES_MAX)}; {known.ADDRESSES_MAX} |",
        # Clients.
        f"| requests under way | {number(async_client.CONNECTIONS_MAX)} |",
        f"| an answer; an object | {calls.ANSWER_LIMIT_BYTES // GIB} GiB |",
        f"| a deadline | {client_wire.DEADLINE_S_MAX / 86_400:g} days |",
        f"an earlier one | {mapping.AHEAD} for each",
        (
            f"over all nodes, retries | {RETRIES.rounds}; {RETRIES.share:g} of requests and "
            f"{RETRIES.floor_per_s:g} a second, {retrying.TOKENS_MAX:g} saved |"
        ),
        # Times.
        f"answer to a cancel | {s(peer_link.CANCEL_TIMEOUT_S)} |",
        f"says nothing | looked at each {s(relay.SWEEP_S)} |",
        f"| requests, when a node ends | said each {s(ending.TELL_EVERY_S)} |",
        (
            f"{s(session_wire.SIGN_OF_LIFE_S)} between signs, "
            f"{s(session_wire.SILENCE_S)} without one"
        ),
        f"that ends, to go elsewhere | {s(session_clients.PARTING_S)} |",
        (
            f"| {s(config_store.TIMEOUT_S)} for an answer; read each {s(config_store.POLL_S)}; "
            f"after a failure {s(config_store.RETRY_FIRST_S, config_store.RETRY_LONGEST_S)} |"
        ),
        f"tokens in files | looked at each {s(rotation.LOOK_S)} |",
        f"goodbye (TLS) | {s(contexts.SHUTDOWN_S)} |",
        f"looked at once in {s(securing.LOOK_AGAIN_S)}, for {s(unbelieved.LOOK_S)} |",
        f"spans to leave, when a node ends | {s(watching.FLUSH_S)} |",
        f"tried after {s(upstreams.PROBE_FIRST_S)}, up to {s(upstreams.PROBE_LONGEST_S)} |",
        f"asks to be left alone | {s(upstreams.ALONE_S_MAX)} at most |",
        f"idle connection to a service | {s(upstreams.IDLE_S_MAX)}; half of",
        f"more than others | {s(upstreams.PASS_OVER_S, upstreams.PASS_OVER_S_MAX)} |",
        (
            f"to connect; to begin | {s(dask.CONNECT_S)}; {s(dask_session.OPEN_S)} | tried again "
            f"after {s(dask.AGAIN_FIRST_S, dask.AGAIN_LONGEST_S)};"
        ),
        f"a scheduler that says nothing | {s(dask.LOOK_LIMIT_S)} |",
        f"killed processes | {s(python_handler.END_S)}; {s(processes.JOIN_S)} |",
        f"for a probe or an offer | {s(shell.PEER_TIMEOUT_S)} |",
        f"idle connection between producers | {s(shell.PEER_IDLE_S)} |",
        f"for an object to come | {s(consumer_shell.TRANSFER_S)} more",
        f"to an acknowledgement | {s(consumer_shell.TELL_S)} |",
        f"to say that it lives | {s(consumer_shell.CHECK_S)} |",
        f"to hear what is given back | {s(consumer_shell.CLOSE_S)} |",
        f"who puts an object | {s(producing.BODY_S)} more",
        f"that was not reached | {s(producing.PASSED_OVER_S)} |",
        f"surely not begun | {s(work.AGAIN_S, work.AGAIN_S_MAX)} |",
        f"the count of a delivery | {ms(bodies.NOTE_S)} |",
        (
            f"a renewal | a {WORDS[settings.TIMEOUT_SHARE]} of a lease, "
            f"{s(settings.TIMEOUT_S_MAX)} at most |"
        ),
        f"call of a member to Redis | half a renewal period, {s(lease_store.TIMEOUT_S_MAX)} at",
        (
            f"| {s(hints.PING_PERIOD_S)} between pings; after a failure "
            f"{s(hints.RETRY_FIRST_S, hints.RETRY_LONGEST_S)} |"
        ),
        (
            f"to begin | {s(spawn.START_S)} to take its plan; {supervisor.STILL_SHARE:g} of a "
            f"lease, at least {s(supervisor.START_S_MAX)}, until it renews |"
        ),
        f"if it had not renewed {s(2 * supervisor.RESTART_S)}, doubled each time",
        f"begun again; after {supervisor.YOUNG_DEATHS_MAX} such deaths a thread",
        (
            f"Redis; repeats | {s(reader.WAIT_S)}; {s(reader.TIMEOUT_S)}; "
            f"{s(steps.RETRY_FIRST_S, steps.RETRY_LONGEST_S)}, "
            f"for {s(reader.RETRY_S)} |"
        ),
        f"read each {s(report.SHARED_S)}, {s(report.TIMEOUT_S)} for an answer |",
        (
            f"for a new one | {s(known.PATIENCE_S)}, if the last lookup went well; an answer holds "
            f"{s(known.FRESH_S)} |"
        ),
        f"a lookup that failed | {s(known.RETRY_S)} |",
        f"keeps its answer for {s(known.GONE_S)} |",
        (
            f"of several, to take a connection | {s(race.DELAY_S)} | the next one is tried "
            f"beside it; it comes last for {s(known.SUSPECT_S)} |"
        ),
        f"a client: to connect | {s(calls.CONNECT_S)} |",
        f"that nobody acknowledges | {s(calls.USER_TIMEOUT_S)} |",
        f"a client: an idle connection | {s(calls.IDLE_S_MAX)} |",
        f"at the deadline | {s(calls.GRACE_S)} more |",
        (
            f"between rounds | {s(retrying.FIRST_WAIT_S, retrying.LONGEST_WAIT_S)}; at the node "
            f"that may have run it {s(retrying.LONGEST_HOME_WAIT_S)} |"
        ),
        (
            f"a node that failed | {s(nodes.FIRST_PAUSE_S, nodes.LONGEST_PAUSE_S)} | one request "
            f"tries it, for {s(nodes.TRIAL_S)} |"
        ),
        f"nobody waits for | {s(calls.PARTING_S)} |",
        f"a look-up of a job | {s(job.WAIT_S_MAX)} |",
    ],
    "decisions/0006-reports.md": [f"{WORDS[report_repeats.SAID_TIMES]} said, and then only"],
    "decisions/0012-names.md": [f"at once and every {s(ending.TELL_EVERY_S)}, and what was lost"],
    "decisions/0015-http-handler.md": [
        f"end after {s(upstreams.IDLE_S_MAX)}, before common servers close theirs",
        f"has kept {reuse.KEPT_IN_A_ROW} in a row open*",
        f"each for {s(reuse.REST_S)}; until then",
        f"sooner than {s(reuse.AT_ONCE_S)} after an answer",
        f"more than {kib(connection.UPLOAD_BYTES)}, answer of {connection.REFUSES_FROM} or more",
        f"after {s(upstreams.AGE_S_MAX)} or {number(reuse.USES_MAX)} requests, a quarter",
        f"({s(reuse.AGE_S_MAX)} to neighbors)",
    ],
    "decisions/0033-doors.md": [
        f"others {BEGUN} s after the end, as long as there is no answer",
    ],
    "decisions/0016-write-batch.md": [
        f"whose body comes within {ms(http_connection.DIRECT_WITHIN_S)} is served",
        f"Blocks from {mib(allocator.MAPPED_BYTES)} on",
    ],
    "decisions/0027-dask-handler.md": [f"silent for {s(dask.LOOK_LIMIT_S)} counts as lost"],
    "decisions/0028-console.md": [
        f"keeps the last {WORDS[recent.WINDOW_S]} seconds (`live/overflow/recent.py`)",
        f"histogram of {recent.DOUBLINGS * recent.STEPS_PER_DOUBLING} steps of "
        f"{2 ** (1 / recent.STEPS_PER_DOUBLING) - 1:.0%}".replace("%", " %"),
    ],
    "decisions/0030-failing-work.md": [
        f"nothing starts until then (at most {s(upstreams.ALONE_S_MAX)}), P is 0",
        f"passed over for {upstreams.PASS_OVER_S:g} to {s(upstreams.PASS_OVER_S_MAX)},",
    ],
    "decisions/0039-distributed-queue.md": [
        f"no answer comes within {s(consumer_shell.CHECK_S)}.",
        f"in pieces of {mib(bodies.PIECE_BYTES)}:",
        f"stay open for {s(shell.PEER_IDLE_S)}:",
        f"a count is written {ms(bodies.NOTE_S)} after the delivery",
    ],
    "decisions/0041-client-sessions.md": [
        f"`{{}}` every {s(session_wire.SIGN_OF_LIFE_S)} is a sign of life",
        f"{s(session_wire.SILENCE_S)} without a line",
    ],
    "decisions/0042-who-is-who.md": [
        f"looked at each {s(rotation.LOOK_S)} and on SIGHUP",
        f"at most {certified.CONNECTIONS_MAX} connections to a neighbor with TLS",
        f"at most {securing.HANDSHAKES_AT_ONCE} handshakes at once to one",
        f"a handshake has {s(contexts.HANDSHAKE_S)}, a shutdown {s(contexts.SHUTDOWN_S)}.",
        f"takes at most {WORDS[handshakes.STEPS_PER_TURN]} steps in a turn of the loop",
        f"makes 256 KiB for each record of {kib(write_batch.RECORD_BYTES)} and joins",
    ],
    "decisions/0043-pass-through.md": [
        f"once {kib(relay.UNSENT_MAX_BYTES)} are unsent by its connection",
        f"On the emulated link the mark stays {kib(passed_back.UNSENT_MAX_BYTES)}:",
        f"(at most {kib(proxy.HELD_BACK_MAX_BYTES)} of body; what says more begins)",
        f"in parts of {kib(small_reads.READ_BYTES)} and written at once",
        f"beside the servers, at most {proxy.UNQUEUED_MAX} at once",
        f"At most {known_heads.KNOWN_MAX} heads of {kib(known_heads.HEAD_BYTES_MAX)} of each kind",
    ],
    "decisions/0044-names.md": [
        f"At most {known.LOOKUPS_MAX} run at once, {known.FAILING_MAX} of them for names whose",
        f"**Answers** hold {s(known.FRESH_S)}, since",
        f"waits {s(known.PATIENCE_S)} for the new answer",
        f"{number(known.NAMES_MAX)} names are remembered, with {known.ADDRESSES_MAX} addresses",
        f"the next one after {s(race.DELAY_S)} or at once",
        f"comes last for {s(known.SUSPECT_S)}, then one",
    ],
    "docs/client.md": [
        f"| `deadline_s` ({async_client.DEADLINE_S:g}) |",
        f"`connections_max` ({number(async_client.CONNECTIONS_MAX)}) requests are under way",
        (
            f"at first for {WORDS[nodes.FIRST_PAUSE_S]} a second, "
            f"at most for {nodes.LONGEST_PAUSE_S:g}; then one"
        ),
        f"spends {s(calls.PARTING_S)} on that at most",
        f"{RETRIES.share:g} for each request, and {RETRIES.floor_per_s:g} a second",
        f"does not come back within {s(RETRIES.comeback_s)}",
        f"What is beyond {kib(blocking.BODY_MAX_BYTES)}, `https`",
    ],
    "docs/http.md": [
        f"headers of a request | {kib(http_connection.HEAD_LIMIT_BYTES)}, {s(BOUNDS.head_s)} from",
        (
            f"| body of a request | `payload_limit_bytes` (1 MiB); whole, or "
            f"{BOUNDS.body_bytes_per_s:g} bytes/s of it, over each {s(BOUNDS.body_s)} |"
        ),
        f"| name, type | {NAME_LENGTH_MAX} and {TYPE_LENGTH_MAX} characters |",
        f"| a wait | {s(preferences.WAIT_MAX_S)} |",
        f"Waits end after {s(preferences.WAIT_MAX_S)} at the latest",
        f"before its first request too | closed after {s(BOUNDS.idle_s)} (`client_idle_ms`) |",
        f"the request and did not confirm within {s(request_routes.CONFIRM_S)}.",
        f"has those that are served, {answers.TYPES_MAX} at most.",
        f"The headers did not arrive within {s(BOUNDS.head_s)}.",
        (
            f"The body was not whole within {s(BOUNDS.body_s)}, and came with less than "
            f"{BOUNDS.body_bytes_per_s:g} bytes/s over such a time."
        ),
        f"or more than {lease_server.CONNECTIONS_MAX} connections are open",
        f"| result of a handler | {mib(handler_calls.RESULT_LIMIT_BYTES)} |",
        f"| clients that wait for one name | {number(waiters.WAITERS_MAX)} |",
        (
            f"a head of more than {kib(framing.HEAD_LIMIT_BYTES)} or of more lines than "
            f"{framing.FIELDS_MAX - heads.ADDED_MAX} 431"
        ),
    ],
    "docs/operations.md": [
        f"Nothing is started until then, {s(upstreams.ALONE_S_MAX)} at most.",
        f"Nodes look at the files every {s(rotation.LOOK_S)}, and at once",
        f"A service reads it again each {s(token_files.LOOK_S)} and on SIGHUP",
        f"and at least {mib(memory_limit.HELD_BYTES_MIN)}; limits of containers",
    ],
    "docs/queue.md": [
        f"objects above {kib(store.FILE_BYTES_MIN)} are files",
        f"last {ms(bodies.NOTE_S)} before a SIGKILL",
        f"within {s(held.ANSWER_S)}, nothing is raised",
    ],
    "docs/security.md": [
        f"handshakes ({s(contexts.HANDSHAKE_S)}).",
        f"read the files again each {s(rotation.LOOK_S)} and on SIGHUP",
    ],
    "docs/sessions.md": [
        f"`{{}}` every {s(session_wire.SIGN_OF_LIFE_S)} is a sign of life.",
        f"After {s(session_wire.SILENCE_S)} without a line",
        f'`{{"within_s":{session_clients.PARTING_S:.1f},"parting":true}}`',
    ],
    "docs/tokens.md": [
        f"for {upstreams.PASS_OVER_S:g} to {s(upstreams.PASS_OVER_S_MAX)}, if others do better",
    ],
}


@pytest.mark.parametrize("document", SAID)
def test_documents_state_what_the_code_goes_by(document):
    text = " ".join((DOCUMENTS / document).read_text("utf-8").split())
    assert [said for said in SAID[document] if said not in text] == []


def test_no_row_of_the_page_is_left_out():
    """Of those below the first table, whose bounds are of topologies and of machines as well."""
    page = (
        (DOCUMENTS / "decisions/0007-bounds.md").read_text("utf-8").partition("**More of it**")[2]
    )
    rows = [line for line in page.splitlines() if re.match(r"\| .*\d", line)]
    said = SAID["decisions/0007-bounds.md"]
    assert [row for row in rows if not any(one in row for one in said)] == []
    assert len(rows) > 70


def test_a_limit_that_stands_in_several_places_is_one():
    assert peer_clients.CONNECTIONS_TLS_MAX == certified.CONNECTIONS_MAX
    assert identity.NAMES_TOLD_MAX == certified.NAMES_TOLD_MAX == material.SHOWN_MAX
    assert calls.ANSWER_LIMIT_BYTES == queue_client_wire.OBJECT_LIMIT_BYTES
    assert framing.HEAD_LIMIT_BYTES == opening.FIRST_LIMIT_BYTES
    assert (reader.TIMEOUT_S, reader.RETRY_S) == (writer.TIMEOUT_S, writer.RETRY_S)


def test_deadlines_are_a_week_and_one_job_a_day_at_most():
    week_s = 7 * 24 * 60 * 60
    assert client_wire.DEADLINE_S_MAX == queue_client_wire.DEADLINE_S_MAX == week_s
    assert week_s * 1e3 == wire.DEADLINE_MS_MAX
    assert week_s * 1e3 / 7 == service_payload.SERVICE_MS_MAX
    assert week_s / 7 == handler_calls.RETRY_AFTER_S_MAX


def test_a_client_closes_connections_before_servers_do_and_connects_alike():
    for client in (calls, queue_client_wire):
        assert client.CONNECT_S == session.CONNECT_S == calls.CONNECT_S
        assert client.IDLE_S_MAX == 4.0  # servers: 5 s, and more
    assert calls.USER_TIMEOUT_S == session.USER_TIMEOUT_S


def test_a_lease_bears_one_silent_connection_and_a_blocked_loop():
    """Three lease times may a member's loop stand still (decision 0022); the process that renews
    is looked after within a lease."""
    assert guard.BLOCKED_LEASES > 3.0
    assert 3 * settings.TIMEOUT_SHARE < 1.0
    assert settings.TIMEOUT_SHARE < supervisor.STILL_SHARE < 0.5
