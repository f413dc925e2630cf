"""`POST /requests` as a client sees it: the answer, every refusal, deadlines, cancellation."""

import gzip
import json

import pytest

JSON = "application/json"
TIMING = {"queued", "network", "service", "return", "total"}


def body(payload=None, **fields):
    return json.dumps({"payload": payload, **fields}).encode()


def a_node(nodes, **cluster):
    """One without neighbors."""
    return nodes.alone(clusters={"a": cluster}, payload_limit_bytes=1000)


async def test_the_answer_has_the_contracts_shape(nodes):
    """Result, where it ran, the way it took, and what it cost in milliseconds."""
    async with a_node(nodes) as node:
        status, headers, answer = await node.send("POST", "/requests", body({"service_ms": 3}))
        assert status == 200
        assert headers[b"content-type"] == JSON.encode()
        assert headers[b"spillover-request-id"].decode() == answer["id"]
        assert answer["id"].startswith("a-")
        assert set(answer) == {"id", "result", "cluster", "path", "hops", "timing_ms"}
        assert (answer["cluster"], answer["path"], answer["hops"]) == ("a", ["a"], 0)
        timing = answer["timing_ms"]
        assert set(timing) == TIMING
        assert timing["total"] == timing["queued"] + timing["network"] + timing["service"] == 3.0


async def test_names_come_back_as_they_were_given(nodes):
    """In the body as text, in headers as UTF-8; the key alone, the id alone, or both."""
    async with a_node(nodes) as node:
        for name in ("plain", "a b/c?d", "100%", "Köln-7", "注文"):
            key, id_ = [(b"Idempotency-Key", name.encode())], {"id": name}
            for headers, fields in ((key, {}), ((), id_), (key, id_)):
                content = body(1, **fields)
                status, sent, answer = await node.send("POST", "/requests", content, headers)
                assert (status, answer["id"]) == (200, name)
                assert sent[b"spillover-request-id"].decode() == name


INVALID_BODIES = [
    b"",
    b"x",
    b"[]",
    b"null",
    b"{}",
    b'{"payload":1}x',
    b'{"payload":"\xff"}',
    b'{"payload":1,"other":"\xff"}',
    b'{"payload":' + b"[" * 400 + b"]" * 399 + b"}",
    b'{"payload":1,"type":1}',
    b'{"payload":1,"type":""}',
    b'{"payload":1,"id":1}',
    b'{"payload":1,"id":""}',
    b'{"payload":1,"id":" blank"}',
    b'{"payload":1,"id":"."}',
    b'{"payload":1,"id":".."}',
    b'{"payload":1,"id":"tab\\there"}',
    b'{"payload":1,"id":"%s"}' % (b"x" * 201),
    b'{"payload":{"service_ms":"soon"}}',
    b'{"payload":{"service_ms":-1}}',
    b'{"payload":{"service_ms":1e999}}',
    b'{"payload":{"service_ms":true}}',
]

INVALID_HEADERS = [
    (b"Spillover-Deadline-Ms", b"soon"),
    (b"Spillover-Deadline-Ms", b"-1"),
    (b"Spillover-Deadline-Ms", b"nan"),
    (b"Spillover-Deadline-Ms", b"inf"),
    (b"Spillover-Deadline-Ms", b"5_000"),
    (b"Spillover-Deadline-Ms", b"+5"),
    (b"Spillover-Deadline-Ms", b".5"),
    (b"Spillover-Deadline-Ms", b"1e999"),
    (b"Spillover-Deadline-Ms", b""),
    (b"Spillover-Priority", b"10"),
    (b"Spillover-Priority", b"x"),
    (b"Spillover-Type", b"t" * 101),
    (b"Idempotency-Key", b"k" * 201),
    (b"Idempotency-Key", b".."),
]


async def test_bad_requests_are_invalid_in_one_line(nodes):
    """Whatever is wrong, the answer is a problem with the reason `invalid`, and the node lives."""
    async with a_node(nodes) as node:
        tries = [(bad, ()) for bad in INVALID_BODIES]
        tries += [(body(1), [header]) for header in INVALID_HEADERS]
        tries += [(body(1, id="x"), [(b"Idempotency-Key", b"y")])]
        tries += [(body(1, type="x"), [(b"Spillover-Type", b"y")])]
        for content, headers in tries:
            status, sent, problem = await node.send("POST", "/requests", content, headers)
            assert (status, problem["reason"]) == (422, "invalid"), (content[:60], headers)
            assert sent[b"content-type"] == b"application/problem+json"
            assert problem["status"] == 422
            assert "\n" not in problem["detail"]
        key = [(b"Spillover-Priority", b"x"), (b"Idempotency-Key", b"known")]
        _, sent, problem = await node.send("POST", "/requests", body(1), key)
        assert sent[b"spillover-request-id"] == b"known"
        assert problem["id"] == "known"
        assert node.ledger.home["accepted"] == 0


async def test_headers_that_contradict_each_other_are_invalid(nodes):
    """The same twice says the same; lines of preferences are one list."""
    given = {
        b"Idempotency-Key": (b"known", b"other"),
        b"Spillover-Deadline-Ms": (b"5000", b"6e3"),
        b"Spillover-Type": (b"t", b"u"),
        b"Spillover-Priority": (b"1", b"2"),
    }
    async with a_node(nodes) as node:
        key = (b"Idempotency-Key", b"known")
        for name, (value, other) in given.items():
            twice = [key, (name, value), (name, other)]
            status, sent, problem = await node.send("POST", "/requests", body(1), twice)
            assert (status, problem["reason"]) == (422, "invalid")
            assert problem["detail"] == f"{name.decode()}: expected once"
            assert (b"spillover-request-id" in sent) == (name != b"Idempotency-Key")
        same = [(name, value) for name, (value, _) in given.items()] * 2
        assert (await node.send("POST", "/requests", body(1), same))[0] == 200
        lines = [b"wait=0", b"respond-async", b"return=minimal"]
        for first in range(3):
            prefer = [(b"Prefer", line) for line in lines[first:] + lines[:first]]
            assert (await node.send("POST", "/requests", body(1), prefer))[0] == 202
        traces = [(b"traceparent", b"x"), (b"traceparent", b"y")]
        assert (await node.send("POST", "/requests", body(1), traces))[0] == 200


async def test_headers_from_outside_that_speak_of_the_way_change_nothing(nodes):
    """Hop and path headers are dropped; priority, type and trace are taken."""
    headers = [
        *((b"Spillover-Hops", b"9"), (b"Spillover-Path", b"x,y"), (b"Spillover-Origin", b"z")),
        *((b"Spillover-Priority", b"7"), (b"Spillover-Type", b"special")),
        (b"traceparent", b"nonsense"),
    ]
    async with nodes.alone() as node:
        status, _, answer = await node.send("POST", "/requests", body(1), headers)
        assert (status, answer["path"], answer["hops"]) == (200, ["a"], 0)


UNKNOWN_FIELDS = [
    (b'{"paylod": 1}', "'paylod', did you mean payload?"),
    (b'{"payload": 1, "Type": "x"}', "'Type', did you mean type?"),
    (b'{"payload": 1, "job": "x", "typ": "x"}', "'typ', did you mean type?"),
    (b'{"payload": 1, "deadline_ms": 5}', "'deadline_ms', did you mean the header Spillover-De"),
    (b'{"payload": 1, "Prioritty": 5}', "'Prioritty', did you mean the header Spillover-Pri"),
    (b'{"payload": 1, "\\n\\u0000x": 5}', r"'\n\x00x', expected one of payload, type, id"),
    (b'{"payload": 1, "%b": 5}' % (b"x" * 500), f"'{'x' * 64}', expected one of payload, type, id"),
    (b'{"payload": "%b", "job": 5}' % (b"x" * 100_000), "'job', expected one of payload, type, id"),
    (b'{"payload": 1, "a": 1, "a": 2}', "'a', expected one of payload, type, id"),
]


async def test_unknown_fields_of_a_body_are_422(nodes):
    """In one line, the likeliest mistake first; nothing runs."""
    async with nodes.alone() as node:
        for content, told in UNKNOWN_FIELDS:
            status, _, problem = await node.send("POST", "/requests", content)
            assert (status, problem["reason"]) == (422, "invalid")
            assert problem["detail"].startswith(f"body: unknown field {told}")
            assert "\n" not in problem["detail"]
        assert node.ledger.home["accepted"] == 0


async def test_a_priority_is_carried_and_shown_nowhere(nodes):
    """It decides nothing yet. A neighbor gets it along with the request."""
    topology = nodes.topology_of("a", "b", clusters={"a": {"queue_limit": 0}})
    async with nodes.Federation(topology) as federation:
        a, b = federation["a"], federation["b"]
        headers = [(b"Spillover-Priority", b"7"), (b"Prefer", b"respond-async")]
        long = body({"service_ms": 60_000})
        views = [(await a.send("POST", "/requests", long, headers))[2] for _ in range(2)]
        await nodes.until(lambda: b.machine.servers.busy)
        (visit,) = b.machine.register.visits.values()
        assert visit.request.priority == 7
        told = [(await b.get(f"/requests/{visit.request.id}"))[1]]
        for view in views:
            told += [(await a.get(f"/{of}/{view['id']}"))[1] for of in ("requests", "explain")]
            told.append((await a.send("DELETE", f"/requests/{view['id']}"))[2])
        assert "priority" not in json.dumps([*views, *told])


async def test_too_large_bodies_are_413_and_the_connection_lives(nodes):
    """The rest is read and thrown away, so that the client gets to read why."""
    async with a_node(nodes) as node:
        room = 1000 - len(body("", id="full"))
        for more, answered in ((0, 200), (1, 413)):
            content = body("x" * (room + more), id="full")
            status, _, told = await node.send("POST", "/requests", content)
            assert (len(content), status) == (1000 + more, answered), told
        for size, kept in ((1001, 1), (200_000, 0)):
            content = body("x" * size, id="one")
            status, sent, problem = await node.send("POST", "/requests", content)
            assert (status, problem["reason"]) == (413, "too_large")
            assert b"connection" not in sent
            assert node.client.idle == kept  # a client cannot know of an upload that it was read
        key = [(b"Idempotency-Key", b"known")]
        _, sent, _ = await node.send("POST", "/requests", b"x" * 2000, key)
        assert sent[b"spillover-request-id"] == b"known"


async def test_draining_refuses_and_resuming_accepts(nodes):
    """202 at once, then drained; what runs is finished; after resume all is as before."""
    async with a_node(nodes) as node:
        held = node.post({"service_ms": 1000})
        await nodes.until(lambda: node.machine.servers.busy == 1)
        status, _, state = await node.send("POST", "/admin/drain")
        assert (status, state["draining"], state["drained"]) == (202, True, False)
        status, _, problem = await node.send("POST", "/requests", body(1))
        assert (status, problem["reason"]) == (503, "draining")
        status, problem = await node.get("/readyz")
        assert (status, problem["reason"]) == (503, "draining")
        assert (await held).status == 200
        assert (await node.get("/state"))[1]["drained"]
        status, _, state = await node.send("POST", "/admin/resume")
        assert (status, state["draining"], state["drained"]) == (200, False, False)
        assert (await node.send("POST", "/requests", body(1)))[0] == 200


@pytest.mark.parametrize("deadline_ms", [b"0", b"60"])
async def test_deadlines_end_in_504(nodes, deadline_ms):
    """Expired on arrival, waiting or running: 504, and the server is free again."""
    async with a_node(nodes) as node:
        headers = [(b"Spillover-Deadline-Ms", deadline_ms)]
        running = node.client.request(
            "POST", "/requests", headers=headers, body=body({"service_ms": 5000}), timeout_s=5
        )
        waiting = node.client.request(
            "POST", "/requests", headers=headers, body=body(1), timeout_s=5
        )
        for future in (running, waiting):
            response = await future
            problem = json.loads(response.body)
            assert (response.status, problem["reason"]) == (504, "deadline_exceeded")
            assert response.headers[b"spillover-request-id"].decode() == problem["id"]
        assert node.ledger.home["expired"] == 2
        assert node.machine.servers.busy == len(node.machine.servers.stuck) == 0


async def test_client_libraries_are_told_what_must_not_be_sent_again_by_itself(nodes):
    """What may have run, and has no key: openai-python ran a job three times. What was refused,
    also since it would be late, has not run."""
    async with a_node(nodes, queue_limit=2, service_ms=400) as node:
        late = [(b"Spillover-Deadline-Ms", b"50")]
        keyed = [*late, (b"Idempotency-Key", b"k")]
        long = body({"service_ms": 400})
        for headers, told in ((late, b"false"), (keyed, None)):
            status, sent, _ = await node.send("POST", "/requests", long, headers)
            assert (status, sent.get(b"x-should-retry")) == (504, told)
        held = node.post({"service_ms": 400})
        await nodes.until(lambda: node.machine.servers.busy == 1)
        queued = [node.post({"service_ms": 1})]
        await nodes.until(lambda: node.machine.queue_length == 1)
        status, sent, _ = await node.send("POST", "/requests", long, late)
        assert (status, sent.get(b"x-should-retry")) == (504, None)
        queued.append(node.post({"service_ms": 1}))
        await nodes.until(lambda: node.machine.queue_length == 2)
        status, sent, _ = await node.send("POST", "/requests", long)
        assert (status, sent.get(b"x-should-retry")) == (429, None)
        assert {(await one).status for one in (held, *queued)} == {200}


async def test_what_is_wrong_with_a_body_that_is_no_json_is_said_in_words(nodes):
    """Parsers speak of truncated data, or of a byte that no decoder takes."""
    async with a_node(nodes) as node:
        packed = gzip.compress(b'{"payload": 1}')
        coded = "not compressed, since no Content-Encoding is read, got {}"
        half = "half of a surrogate pair ({})"
        for content, coding, told in (
            (packed, "gzip", coded.format("gzip")),
            (packed, None, coded.format("gzip")),
            (b"\x1b\x00", "br", coded.format("br")),
            (
                b'{"payload": "\\ud83d\\ude00 \\\\ud800 \\ud800"}',
                None,
                half.format(r"\ud800 at byte 34"),
            ),
            (b'{"payload": "\\udc00\\ud800"}', None, half.format(r"\udc00 at byte 13")),
            (b'{"payload": "\xed\xa0\x80"}', None, half.format("bytes ED A0 to ED BF at byte 13")),
            (b'{"payload": 1', "gzip", "expected JSON: "),
        ):
            headers = [] if coding is None else [(b"Content-Encoding", coding.encode())]
            for method, path in (("POST", "/requests"), ("PUT", "/admin/policy")):
                status, _, problem = await node.send(method, path, content, headers)
                assert (status, problem["reason"]) == (422, "invalid")
                if path == "/requests" or told != "expected JSON: ":
                    assert told in problem["detail"], content
        plain = [(b"Content-Encoding", b"identity")]
        assert (await node.send("POST", "/requests", body(1), plain))[0] == 200
