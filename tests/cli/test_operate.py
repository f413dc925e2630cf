"""`spillover drain`, `resume` and `explain` with nodes that run."""

import asyncio
import json

import pytest

from spillover.cli import explain
from support.scripted_server import answer, scripted
from support.waiting import slack


async def keep_busy(federation, service_ms):
    """Work for the one server of a, and for one request behind it; they are not waited for."""
    node = federation["a"]
    payload = {"service_ms": service_ms}
    sent = [node.post(payload, id=f"busy{i}") for i in range(2)]
    async with asyncio.timeout(30):
        while node.ledger.as_dict()["home"]["accepted"] < len(sent):
            await node.get("/healthz")
    return sent


async def wait_for(_, sent):
    return [(await one).status for one in sent]


def test_drain_and_resume(running, nodes, told):
    """The node finishes what it has; the command tells what is left, waits, and gives up in time,
    with exit status 1."""
    left = "cluster a is draining: 1 waiting, 1 running, 0 with neighbors"
    with running(nodes.topology_of("a", policy="isolated")) as run:
        url = run.urls["a"]
        sent = run.ask(keep_busy, round(300 * slack()))
        status, out, err = told("drain", url, "--no-wait", "--json")
        assert (status, json.loads(out)["drained"], err) == (0, False, f"{left}\n")
        status, out, err = told("drain", url, "--timeout-s", "0.1", "--json")
        assert (status, json.loads(out)["draining"]) == (1, True)
        assert err.splitlines()[-1] == f"spillover: {left}, after 0.1 s"
        status, out, err = told("drain", url, "--json")
        assert (status, json.loads(out)["drained"]) == (0, True)
        assert err.splitlines()[-1] == "cluster a is drained"
        assert run.ask(wait_for, sent) == [200, 200]
        # A drain decides the queue again; what finds no neighbor stays.
        lines = [line.strip() for line in told("explain", url, "busy1")[1].splitlines()]
        assert lines[1] == "kept, it joined the queue"
        assert lines[2].startswith("policy isolated: N 0, m 1, P 1.000")
        assert lines[3] == "kept for want of a neighbor that takes it"
        assert lines[4].startswith("policy isolated: N 0, may not keep, P 0.000")
        assert lines[-1].startswith("ended done")
        assert told("resume", url) == (0, "cluster a accepts requests\n", "")
        status, out, _ = told("resume", url, "--json")
        assert (status, json.loads(out)["draining"]) == (0, False)
        gone = told("explain", url, "nothing")
        assert gone == (1, "", "spillover: cluster a knows of no request 'nothing'\n")


async def hand_on(federation):
    """Requests to a until one has gone on to b; its name."""
    node = federation["a"]
    async with asyncio.timeout(30):
        while not all(node.machine.neighbors.accepting):  # b has not said that it hears a
            await node.get("/healthz")
    sent = {f"orders/{i} ü": None for i in range(6)}
    for name in sent:
        sent[name] = node.post({"service_ms": 30}, id=name)
    for name, future in sent.items():
        if json.loads((await future).body)["path"] == ["a", "b"]:
            return name
    raise AssertionError("none was handed on")


async def stop_b(federation):
    await federation.stop("b")


def test_a_story_across_clusters(running, nodes, told, monkeypatch):
    """Told by each cluster that had a part in it, as one object or for reading."""
    monkeypatch.setenv("COLUMNS", "120")
    with running(nodes.topology_of("a", "b")) as run:
        url = run.urls["a"]
        name = run.ask(hand_on)
        status, out, err = told("explain", url, name, "--json")
        story = json.loads(out)
        assert (status, err, story["id"], list(story["clusters"])) == (0, "", name, ["a", "b"])
        first = story["clusters"]["a"]["decisions"][0]
        assert (first["outcome"], first["neighbor"]) == ("forwarded", "b")
        assert story["clusters"]["b"]["decisions"]
        assert story["clusters"]["a"]["story"][0]["event"] == "decided"

        status, out, err = told("explain", url, name)
        lines = [line.rstrip() for line in out.splitlines()]
        assert (status, err) == (0, "")
        assert lines[:2] == ["cluster a", "  handed on to b"]
        assert lines[2].startswith("    policy two-choice: N ")
        assert lines[3].split() == ["neighbor", "age", "N", "P", "R", "delay", "weight"]
        assert lines[4].split()[0] == "b"
        assert any(line.startswith("  ended done after ") for line in lines)
        assert "cluster b" in lines

        run.ask(stop_b)
        status, out, _ = told("explain", url, name, "--json")
        assert (status, json.loads(out)["clusters"]["b"]["problem"]) == (0, "unreachable")
        _, out, _ = told("explain", url, name)
        assert out.rstrip().endswith("does not answer")


def test_who_handed_it_back_is_not_asked_again():
    """Each cluster once, though each names the other: else the command would never end."""

    def state(own, other):
        neighbors = [{"id": other.partition("=")[0], "url": other.partition("=")[2]}]
        counts = {"servers": 1, "busy": 0, "queue_length": 0, "ledger": {}}
        return answer(200, {"cluster": own, "neighbors": neighbors, **counts})

    def told(neighbor):
        handed = {"outcome": "forwarded", "neighbor": neighbor, "neighbors": []}
        return answer(200, {"decisions": [handed], "story": []})

    async def follow():
        async with scripted() as a, scripted() as b:
            a.answers(state("a", f"b={b.url}"), told("b"))
            b.answers(state("b", f"a={a.url}"), told("a"))
            return await explain._follow(a.url, "r1", ()), len(a.seen), len(b.seen)

    clusters, *asked = asyncio.run(follow())
    assert list(clusters) == ["a", "b"]
    assert asked == [2, 2], "the state and the story of each"
    assert not [one for one in clusters.values() if "problem" in one]


async def keep_until_asked(federation):
    """Requests that all wait at a, until it goes by load and b asks: the name of one that b got."""
    node = federation["a"]
    await node.send("PUT", "/admin/policy", b'{"policy": "isolated"}')
    sent = {f"r{i}": node.post({"service_ms": 150}, id=f"r{i}") for i in range(6)}
    async with asyncio.timeout(30):
        while node.machine.queue_length < 5:
            await node.get("/healthz")
    change = b'{"policy": "adaptive", "shadow": "isolated"}'
    await node.send("PUT", "/admin/policy", change)
    await asyncio.gather(*sent.values())
    for name in sent:
        if any(one["event"] == "pulled_by" for one in node.shell.machine.decider.log.tell(name)):
            return name
    raise AssertionError("none was pulled")


def test_a_pull_is_told_and_followed(running, nodes, told, monkeypatch):
    """Who asked for it is asked for the rest of the story, as whom it was handed to would be."""
    monkeypatch.setenv("COLUMNS", "150")
    with running(nodes.topology_of("a", "b", policy="adaptive")) as run:
        name = run.ask(keep_until_asked)
        status, out, err = told("explain", run.urls["a"], name)
        assert (status, err) == (0, "")
        asked = "  handed on to a neighbor that had an idle server and asked for work: b after "
        at = [out.index(words) for words in ("kept, it joined", asked, "ended done", "cluster b")]
        assert at == sorted(at)


async def ask_two_policies(federation):
    """A request that waits, since its cluster keeps all; what is asked along would not."""
    change = b'{"policy": "isolated", "shadow": "adaptive"}'
    await federation["a"].send("PUT", "/admin/policy", change)
    sent = [federation["a"].post({"service_ms": 60}, id=f"r{i}") for i in range(4)]
    await asyncio.gather(*sent)
    return "r3"


def test_loads_are_told_in_words_and_numbers(running, nodes, told, monkeypatch):
    """What was known of each neighbor's load, what that meant, what a shadow would have done."""
    monkeypatch.setenv("COLUMNS", "300")
    with running(nodes.topology_of("a", "b")) as run:
        name = run.ask(ask_two_policies)
        _, out, _ = told("explain", run.urls["a"], name)
        lines = [line.strip() for line in out.splitlines()]
        assert lines[1] == "kept, it joined the queue"
        assert lines[3].startswith("A request that joins this queue waits about ")
        assert lines[4].startswith("adaptive, asked along, would have handed it to b: about ")
        assert lines[4].endswith(" ms sooner.")
        titles = "neighbor age N P R delay weight load told ahead sent since home load wait there"
        assert lines[5].split() == [*titles.split(), "in", "all"]
        cells = lines[6].split()
        assert cells[0] == "b"
        assert cells[-9:-6:2] == ["ms", "-1"]  # as told so long ago; b has an idle server


async def be_refused(federation):
    """Requests to a while it does not know yet that b drains; the name of one that came back."""
    node, other = federation["a"], federation["b"]
    async with asyncio.timeout(30):
        while not all(node.machine.neighbors.accepting):
            await node.get("/healthz")
    other.shell.neighborhood.emulated[0].set_faults(delay_s=0.2)
    await other.send("POST", "/admin/drain")
    sent = {f"r{i}": node.post({"service_ms": 80}, id=f"r{i}") for i in range(6)}
    await asyncio.gather(*sent.values())
    for name in sent:
        if any(one["event"] == "refused_by" for one in node.shell.machine.decider.log.tell(name)):
            return name
    raise AssertionError("none was refused")


def test_a_story_is_told_in_its_order(running, nodes, told, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    with running(nodes.topology_of("a", "b")) as run:
        name = run.ask(be_refused)
        _, out, _ = told("explain", run.urls["a"], name)
        at = [out.index(words) for words in ("handed on to b", "refused by b", "kept", "ended")]
        assert at == sorted(at)


@pytest.mark.parametrize("words", ["drain {}", "resume {}", "explain {} x"])
def test_nobody_there(words, free_url, told):
    no_node = f"spillover: no Spillover node answers at {free_url}\n"
    assert told(*words.format(free_url).split()) == (1, "", no_node)


@pytest.mark.parametrize(
    ("ground", "words"),
    [
        ({"rank": 0.5}, "the least loaded, of rank 0.5; others by rank: B 0.75"),
        ({}, "the longest available, for 2 ms, 3 releases; others by releases: B 1"),
    ],
)
def test_why_a_token_was_granted(ground, words):
    grant = {
        "token": 7,
        "class": "A",
        "server": "s1",
        "available_ms": 2.0,
        "available_releases": 3,
    }
    other = {"class": "B", "rank": 0.75} if ground else {"class": "B", "available_releases": 1}
    record = {"granted": grant | ground | {"others": [other], "others_count": 1}}
    assert explain._granted(record) == f"token 7 of class A, on server s1: {words}"
