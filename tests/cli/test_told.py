"""What operators' commands make of what a node or a producer says. Who says it here is scripted,
since real ones are seldom in such states.
"""

import asyncio
import json

import pytest

from spillover.cli import drain, explain, producers
from spillover.cli.node_calls import NodeCalls, ProblemAnswered
from spillover.inputs.topology_file import dump_topology, load_topology, short_text
from spillover.model.errors import NotDelivered, RunError
from support.scripted_server import answer, problem, scripted, scripted_aside


def state(cluster="a", **more):
    """What a node says at `/state`."""
    ledger = {"home": {"away": 0, "running": 0}, "foreign": {"handed_on": 0, "running": 0}}
    counts = {"servers": 2, "busy": 0, "queue_length": 0, "draining": False, "drained": False}
    return {"cluster": cluster, "neighbors": [], "ledger": ledger, **counts, **more}


def producer(name, **more):
    """The same of a producer: no two counts are alike."""
    names = ("buffered", "buffers", "granted", "dead", "waiting", "takes", "parked", "produced")
    counts = {name: at for at, name in enumerate((*names, "acknowledged"), 1)}
    return {"producer": name, "peers": {}, "draining": False, "drained": False, **counts, **more}


# --- config --------------------------------------------------------------------------------------


def test_a_configuration_that_was_superseded_is_told_beside_the_one_that_counts(told):
    config = {"version": 4, "topology": "name: x\n", "superseded": None}
    with scripted_aside(answer(200, config)) as node:
        assert told("config", "get", node.url) == (0, "name: x\n", "")
        node.answers(answer(200, config | {"superseded": {"version": 3}}))
        status, out, err = told("config", "get", node.url)
    assert (status, out) == (0, "name: x\n")
    assert err == "spillover: version 3 that was set here was superseded; it is in --json\n"


TWO = """\
name: two
version: 6
clusters: [{id: a, servers: 1, queue_limit: 10}, {id: b, servers: 1}]
links: [{between: [a, b], delay_ms: 5}]
"""


def test_what_is_set_goes_as_it_is_in_the_file_with_the_version_it_takes_the_place_of(
    told, tmp_path
):
    """The file's own, unless another is given; of a built-in name its short text."""
    file = tmp_path / "two.yaml"
    file.write_text(TWO)
    taken = answer(200, {"version": 7, "topology": TWO})
    with scripted_aside(taken) as node:
        status, out, err = told("config", "set", node.url, file)
        assert (status, err) == (0, "")
        assert out == "version 7 is taken; other nodes follow within a second or two\n"
        told("config", "set", node.url, file, "--if-version", "0")
        _, out, _ = told("config", "set", node.url, "ring5", "--json")
        assert json.loads(out)["version"] == 7
        node.answers(problem(422, "invalid", "body.topology.clusters: expected others"))
        refused = told("config", "set", node.url, file)
        node.answers(problem(409, "conflict", "expected version 9"))
        late = told("config", "set", node.url, file)
    assert node.seen[0][0] == "PUT /admin/config"
    assert [json.loads(body) for body in node.bodies[:3]] == [
        {"if_version": 6, "topology": TWO},
        {"if_version": 0, "topology": TWO},
        {"if_version": 0, "topology": short_text(load_topology("ring5"))},
    ]
    assert refused == (2, "", f"spillover: {file}: clusters: expected others\n")
    assert late == (1, "", "spillover: conflict: expected version 9\n")


def test_what_would_change_is_told_from_what_is_to_what_would_be(told, tmp_path):
    """And whether the node would refuse it."""
    file = tmp_path / "two.yaml"
    file.write_text(TWO)
    config = {"version": 5, "topology": dump_topology(load_topology(str(file)))}
    file.write_text(TWO.replace("queue_limit: 10", "queue_limit: 20"))
    with scripted_aside(answer(200, state()), answer(200, config)) as node:

        def differs(*more):
            node.answers(answer(200, state()), answer(200, config))
            status, out, err = told("config", "diff", node.url, file, *more)
            assert (status, err) == (0, "")
            return out

        assert differs() == "~ cluster a queue_limit: 10 to 20\n"
        file.write_text(f"gossip_period_ms: 99\n{TWO}")
        fixed, refused = differs().splitlines()
        assert fixed == "~ gossip_period_ms: 50.0 to 99.0"
        assert refused.startswith("it would be refused: gossip_period_ms: expected ")
        object_told = json.loads(differs("--json"))
        # Without a name both have that of the file.
        unnamed = TWO.removeprefix("name: two\n")
        config["topology"] = f"policy: adaptive\n{unnamed}"
        file.write_text(unnamed)
        assert differs() == "nothing differs from version 5\n"
        # A node that tells no policy is older, and runs what was the default then.
        config["topology"] = unnamed
        assert differs() == "~ policy: paper to adaptive\n"
    assert object_told == {
        "version": 5,
        "changes": [fixed],
        "refused": refused.removeprefix("it would be refused: "),
    }


# --- drain and resume ----------------------------------------------------------------------------


def test_a_drain_that_somebody_takes_back_ends(told, monkeypatch):
    monkeypatch.setattr(drain, "LOOK_EVERY_S", 0.0)
    with scripted_aside(answer(200, state(draining=True)), answer(200, state())) as node:
        status, out, err = told("drain", node.url)
    assert (status, out) == (1, "")
    assert err.endswith("spillover: cluster a accepts again: somebody resumed it\n")


def test_producers_are_drained_and_resumed_too(told):
    with scripted_aside(answer(200, producer("p1", draining=True))) as there:
        assert told("drain", there.url, "--no-wait") == (
            0,
            "producer p1 is draining: 1 objects buffered, 3 granted\n",
            "",
        )
        assert told("resume", there.url) == (0, "producer p1 takes objects\n", "")
    assert [line for line, _ in there.seen] == ["POST /admin/drain", "POST /admin/resume"]


# --- producers -----------------------------------------------------------------------------------


def test_a_producer_is_asked_for_its_peers_and_they_for_themselves(told, free_url, monkeypatch):
    """In the order in which it names them; who does not answer is named as well."""
    monkeypatch.setenv("COLUMNS", "200")
    with scripted_aside() as second, scripted_aside() as first:
        second.answers(answer(200, producer("p2", buffered=7)))
        peers = {"p3": free_url, "p2": second.url, "p4": free_url}
        own = answer(200, producer("p1", peers=peers))
        first.answers(problem(404, "not_found"), own, problem(404, "not_found"), own)
        _, out, _ = told("status", first.url, "--json")
        found = json.loads(out)["producers"]
        _, shown, _ = told("status", first.url)
    assert list(found) == ["p1", "p3", "p2", "p4"]
    assert [line for line, _ in second.seen] == ["GET /state"] * 2
    assert [line for line, _ in first.seen] == ["GET /federation", "GET /state"] * 2
    assert found["p3"] is None
    assert (found["p1"]["buffered"], found["p2"]["buffered"]) == (1, 7)
    assert [" ".join(line.split()) for line in shown.splitlines()] == [
        "producer buffered granted dead offers takes probes produced done objects state",
        "p1 1/2 3 4 5 6 7 8 9 in memory well",
        "p3 does not answer",
        "p2 7/2 3 4 5 6 7 8 9 in memory well",
        "p4 does not answer",
    ]
    head, _, silent, *_ = shown.splitlines()
    assert head.index("state") == silent.index("does not answer")


def test_who_was_given_https_is_not_led_to_http():
    """With the API token that it shows."""

    async def ask():
        async with scripted(answer(200, producer("p2"))) as peer:
            found = await producers._state(peer.url, "https://127.0.0.1:9", ())
            return found, peer.seen

    assert asyncio.run(ask()) == (None, [])


def test_the_story_of_a_request_does_not_lead_there_either():
    """Nor where nobody knows the way."""
    assert explain._led("http://b", "http://a") == "http://b"
    assert explain._led("https://b", "https://a") == "https://b"
    for to, url in (("http://b", "https://a"), (None, "http://a")):
        with pytest.raises(RunError, match="unreachable"):
            explain._led(to, url)


def test_who_has_forgotten_a_request_is_told_beside_who_has_not():
    decided = {"outcome": "forwarded", "neighbor": "b", "neighbors": []}
    gone = problem(404, "unknown_request", "none")

    async def follow():
        async with scripted() as a, scripted(answer(200, state("b")), gone) as b:
            to_b = state("a", neighbors=[{"id": "b", "url": b.url}])
            a.answers(answer(200, to_b), answer(200, {"decisions": [decided]}))
            return await explain._follow(a.url, "r1", ())

    assert asyncio.run(follow()) == {
        "a": {"decisions": [decided]},
        "b": {"id": "r1", "cluster": "b", "decisions": [], "problem": "unknown_request"},
    }


# --- what any of them is told --------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 503])
def test_a_refusal_says_its_reason_and_what_it_is_about(status):
    async def ask():
        refusal = problem(status, "invalid", "expected less")
        async with scripted(refusal) as node, NodeCalls(node.url) as calls:
            await calls.state()

    with pytest.raises(ProblemAnswered, match=r"^invalid: expected less$") as refused:
        asyncio.run(ask())
    assert (refused.value.reason, refused.value.detail) == ("invalid", "expected less")


@pytest.mark.parametrize("said", [answer(300, state()), answer(500, state()), answer(200, [])])
def test_what_no_node_answers_is_taken_for_none(said):
    async def ask():
        async with scripted(said) as node, NodeCalls(node.url) as calls:
            await calls.state()

    with pytest.raises(RunError, match=r"^no Spillover node answers at http:"):
        asyncio.run(ask())


def test_why_nobody_was_reached_is_told_where_certificates_may_be_the_reason():
    async def lines():
        for scheme in ("http", "https"):
            url = f"{scheme}://127.0.0.1:9"
            async with NodeCalls(url) as calls:
                yield str(calls._no_node(NotDelivered(f"{url}: not trusted")))

    async def all_of_them():
        return [line async for line in lines()]

    assert asyncio.run(all_of_them()) == [
        "no Spillover node answers at http://127.0.0.1:9",
        "no Spillover node answers at https://127.0.0.1:9: not trusted",
    ]
