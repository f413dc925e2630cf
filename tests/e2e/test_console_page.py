"""The console in a browser: headless Chromium, a real testbed, real load, and nodes that die.

What the service sends, and its bounds, are tested in tests/apps/test_console.py; how states look
that are hard to come by, in test_console_told.py.
"""

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spillover.model.access import Role
from support.api_tokens import let_in
from support.commands import SPILLOVER
from support.console_page import cluster, fact, give_secret, has_no_sideways_scroll, tile
from support.ports import free_ports, free_row
from support.queue_service import Producer
from support.waiting import slack

THREE = """
name: three
clusters: [{id: a, servers: 5}, {id: b, servers: 5}, {id: c, servers: 5}]
links: [{between: [a, b], delay_ms: 5}, {between: [b, c], delay_ms: 5}, {between: [a, c]}]
"""
HOSTILE = '<img src=x onerror="document.title=1">'

PAINTED_MS = 1000.0

NO_STORAGE = """for (const name of ["sessionStorage", "localStorage"]) {
  Object.defineProperty(window, name, { get() { throw new DOMException("no", "SecurityError"); } });
}"""
"""As browsers are that may keep nothing of a site."""


@pytest.fixture
def three(tmp_path):
    """A file with three clusters, each linked to the others."""
    path = tmp_path / "three.yaml"
    path.write_text(THREE)
    return str(path)


@pytest.fixture(scope="module")
def shared(chromium, module_start, tmp_path_factory):
    """A testbed of three for tests that leave it as it was, and its urls: none without browser."""
    file = tmp_path_factory.mktemp("three") / "three.yaml"
    file.write_text(THREE)
    options = ("--json", "--seed", "1", "--port", str(free_row(3)))
    bed = module_start(*SPILLOVER, "up", str(file), *options)
    return bed, bed.ready()


def test_it_shows_what_the_state_says(three, up, ask, opened, expect, start):
    """Numbers are those of `/state`, also while they change; text stays text; all of it is there
    within a moment; and a decision says why, where loads count."""
    _, urls = up(three, "--seed", "1")
    with opened(urls["b"]) as page:
        expect(page.locator(".map [data-cluster]")).to_have_count(3)
        expect(tile(page, "clusters")).to_have_text("3 of 3")
        expect(page.locator("#title")).to_have_text("Spillover b")
        assert (
            page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            < PAINTED_MS * slack()
        )
        for number in range(9):  # five run, the others wait or go elsewhere
            body = json.dumps({"payload": {"service_ms": 60_000}, "id": f"{HOSTILE}{number}"})
            start("curl", "-s", f"{urls['b']}/requests", "-d", body)
        expect(fact(page, "busy servers")).to_have_text("5 of 5")
        expect(page.locator("#decisions tbody button")).to_have_count(9)  # none is on its way yet
        state = ask(f"{urls['b']}/state")[1]
        expect(fact(page, "waiting, N")).to_have_text(str(state["queue_length"]))
        expect(fact(page, "accepts, P")).to_have_text(f"{state['accept_probability']:.2f}")
        expect(fact(page, "policy")).to_have_text("adaptive")
        expect(cluster(page, "b").locator(".waiting")).to_have_text(str(state["queue_length"]))
        neighbors = page.locator("#cluster tbody th")
        expect(neighbors).to_have_text([one["id"] for one in state["neighbors"]])
        expect(page.locator("#decisions tbody button").last).to_have_text(re.compile("^<img src=x"))
        page.locator("#decisions tbody button").last.click()
        expect(page.locator("#explanation h2")).to_have_text(re.compile("^<img src=x"))
        expect(page.locator("#explanation")).to_contain_text("A server was free")
        assert page.locator("img").count() == 0
        page.keyboard.press("Escape")
        shown = page.locator("#explanation")
        expect(shown).to_be_hidden()
        # Why it waits, in words: what it would take here, and what is known of each neighbor.
        page.locator("#decisions tbody button").first.click()
        expect(shown).to_contain_text("A request that joins this queue waits about")
        expect(shown.locator("th:text-is('sent since')")).to_have_count(1)
        expect(shown.locator("tbody tr").first.locator("td")).to_have_count(12)


def test_it_fits_a_phone_and_both_themes(shared, opened, expect):
    """Nothing sticks out, whatever is open; dark or light as the system has it, or as chosen."""
    _, urls = shared
    with opened(urls["a"], width=360, height=740, has_touch=True, color_scheme="dark") as page:
        expect(page.locator(".map [data-cluster]")).to_have_count(3)
        assert has_no_sideways_scroll(page)
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        expect(page.locator("#theme")).to_contain_text("light")  # what a press makes of it
        page.locator("#theme").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        cluster(page, "c").click()
        expect(page.locator("#cluster h2")).to_have_text("Cluster c")
        page.locator("[data-kind=started]").click()
        assert has_no_sideways_scroll(page)
    with opened(urls["a"], width=1000, height=700, color_scheme="light") as page:
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        assert has_no_sideways_scroll(page)


def test_it_goes_on_when_a_node_dies(shared, generate, opened, expect):
    """Under load; a decision of just now is explained; the dead one is marked, and the others'
    figures keep moving."""
    bed, urls = shared
    load = generate(
        urls, "--workload", "poisson", "--rate", "345", "--duration-s", "30", "--seed", "1"
    )
    with opened(urls["a"]) as page:
        page.locator('[data-kind="forwarded"]').click()
        badge = page.locator("#decisions tbody .badge").first
        expect(badge).to_have_text(re.compile("→ [bc]"))
        expect(page.locator(".flow[data-on]").first).to_be_visible()
        expect(tile(page, "mean time")).to_have_text(re.compile(" m?s$"))
        page.locator("#decisions tbody button").first.click()
        explained = page.locator("#explanation .decision").first
        expect(explained).to_contain_text(re.compile("Handed on to [bc]"))
        expect(explained.locator("tbody th")).to_have_count(2)
        expect(explained).to_contain_text("R, with its neighbors")
        page.locator("#explanation button").click()
        os.kill(bed.nodes()["c"], signal.SIGKILL)
        expect(cluster(page, "c")).to_have_attribute("data-state", "gone")
        expect(tile(page, "clusters")).to_have_text("2 of 3")
        cluster(page, "c").click()
        expect(page.locator("#cluster")).to_contain_text("unreachable")
        expect(fact(page, "last heard of")).to_have_text(re.compile(" s ago$"))
        cluster(page, "a").click()
        before = page.locator("#decisions tbody button").first.inner_text()
        page.locator('[data-kind="all"]').click()
        page.mouse.move(1, 1)
        expect(page.locator("#decisions tbody button").first).not_to_have_text(before)
        expect(page.locator("#connection")).to_have_text("live")
        load.process.kill()


def test_it_says_when_its_own_node_is_gone(shared, ask, opened, expect):
    """Killed or frozen: since when, and that what is shown is old; live again when it is back. Its
    buttons work before."""
    bed, urls = shared
    with opened(urls["a"]) as page:
        drains_and_resumes(page, urls, ask, expect)
        cluster(page, "a").click()
        lost = page.locator("#lost")
        expect(page.locator("#connection")).to_have_text("live")
        expect(lost).to_be_hidden()
        pid = bed.nodes()["a"]
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
        os.kill(pid, signal.SIGSTOP)
        expect(lost).to_contain_text("says nothing any more")
        os.kill(pid, signal.SIGCONT)
        expect(lost).to_be_hidden()
        os.kill(pid, signal.SIGKILL)
        expect(lost).to_contain_text("Connection lost since")
        expect(lost).to_contain_text("Nobody answers there")
        expect(page.locator("#connection")).to_have_text("lost")
        with subprocess.Popen(command, stdin=subprocess.PIPE) as again:
            expect(page.locator("#connection")).to_have_text("live")
            expect(lost).to_be_hidden()
            expect(tile(page, "clusters")).to_have_text("3 of 3")
            again.stdin.close()  # the sign to end


def drains_and_resumes(page, urls, ask, expect):
    """Two presses each. Only of the cluster that the page is of; others' pages are linked."""
    expect(page.locator("[data-action=resume]")).to_be_disabled()
    page.locator("[data-action=drain]").click()
    page.get_by_text("No", exact=True).click()
    assert ask(f"{urls['a']}/state")[1]["draining"] is False
    page.locator("[data-action=drain]").click()
    page.locator("[data-sure=drain]").click()
    expect(cluster(page, "a")).to_have_attribute("data-state", "draining")
    expect(page.locator("#cluster .badge")).to_have_text("drained")
    assert ask(f"{urls['a']}/state")[1]["drained"] is True
    page.locator("[data-action=resume]").click()
    page.locator("[data-sure=resume]").click()
    expect(page.locator("#cluster .badge")).to_have_text("up")
    assert ask(f"{urls['a']}/state")[1]["draining"] is False
    cluster(page, "b").click()
    expect(page.locator("[data-action=drain]")).to_be_hidden()
    expect(page.locator("#cluster a")).to_have_attribute("href", f"{urls['b']}/console")


def test_it_asks_for_an_api_token_and_keeps_it_in_the_tab(up, opened, expect, tmp_path):
    """No address and no storage that outlives the tab has it; who may not operate is told so."""
    roles = {"read": Role.READ, "operate": Role.OPERATE}
    tokens = tmp_path / "tokens.yaml"
    secrets = {name: let_in(tokens, name, "", role) for name, role in roles.items()}
    (tmp_path / "one.yaml").write_text("clusters: [{id: a, servers: 1}]\n")
    bed, urls = up("one.yaml", "--tokens", str(tokens), cwd=tmp_path)
    asked = []
    with opened(urls["a"], secret=secrets["read"]) as page:
        page.on("request", lambda request: asked.append(request.url))
        expect(page.locator("#connection")).to_have_text("live")
        expect(cluster(page, "a")).to_be_visible()
        expect(page.locator("#why-not")).to_contain_text("has not got the role operate")
        expect(page.locator("[data-action=drain]")).to_be_disabled()
        page.reload()  # it is still there
        expect(page.locator("#connection")).to_have_text("live")
        kept = page.evaluate("[Object.values(sessionStorage), Object.values(localStorage)]")
        assert secrets["read"] in kept[0]
        assert secrets["read"] not in str(kept[1]) + page.evaluate("document.cookie")
        page.get_by_role("button", name="forget API token").click()
        expect(page.locator("#access")).to_contain_text("wants an API token with the role read")
        give_secret(page, "guessed")
        expect(page.locator("#access")).to_contain_text("This one does not do")
        expect(page.locator("#connection")).to_have_text("closed")
        # What no header can carry was "nobody answers there", again and again.
        give_secret(page, "gue\u200bssed")
        expect(page.locator("#access")).to_contain_text("This cannot be an API token")
        expect(page.locator("#lost")).to_be_hidden()
        give_secret(page, f"Bearer {secrets['read']}")
        expect(page.locator("#connection")).to_have_text("live")
        # Revoked while it is shown: the page is told, and asks for another one.
        whole = (tmp_path / "tokens.yaml").read_text()
        (tmp_path / "tokens.yaml").write_text(whole[whole.index('- name: "operate"') :])
        for node in bed.nodes().values():
            os.kill(node, signal.SIGHUP)
        expect(page.get_by_label("API token")).to_be_visible()
        expect(page.locator("#access")).to_contain_text("This one does not do")
        assert page.evaluate("Object.values(sessionStorage)") == []
        page.add_init_script(NO_STORAGE)
        page.reload()
        give_secret(page, secrets["operate"])
        page.locator("[data-action=drain]").click()
        page.locator("[data-sure=drain]").click()
        expect(page.locator("#cluster .badge")).to_have_text("drained")
    assert asked
    assert not [url for url in asked if any(secret in url for secret in secrets.values())]
    assert bed.end() == 0


def test_a_lease_member_shows_owners(
    redis_servers, redis_server, start, ask, until, opened, expect
):
    """Of every partition; and what moved when a member died."""
    times = ["--normal-lease-ms", "500", "--max-lease-ms", "2000", "--max-shutdown-ms", "300"]
    command = [sys.executable, "-m", "spillover", "lease", "run", "--redis", redis_server.url]
    command += ["--group", redis_servers.new_name(), "--partitions", "12", *times]
    command += ["--min-grab-ms", "100", "--held-delay-ms", "5", "--bind", "127.0.0.1:0"]
    command += ["--handler", "python:spillover.live.leases.streams.example:consume_async"]
    members = [start(*command, "--node", f"m{number}") for number in (1, 2)]
    until(lambda: all("serving" in one.stdout for one in members), 30.0)
    url = json.loads(members[0].stdout.splitlines()[0])["url"]
    # Before the page looks: what moves until they are even is no news to it.
    until(lambda: [one["held"] for one in ask(f"{url}/state")[1]["members"]] == [6, 6], 30.0)
    with opened(url) as page:
        for name in ("m1", "m2"):
            expect(page.locator(f'#partitions [data-owner="{name}"]')).to_have_count(6)
        expect(tile(page, "partitions served")).to_have_text("12 of 12")
        expect(page.locator('[data-member="m1"] th')).to_contain_text("this one")
        members[1].process.kill()
        expect(page.locator('#partitions [data-owner="m1"]')).to_have_count(12)
        expect(tile(page, "members")).to_have_text("1")
        # On a busy machine some move more than once.
        expect(tile(page, "moves seen here")).to_have_text(re.compile(r"^([6-9]|\d\d)$"))
        expect(page.locator("#moves tbody tr").last).to_contain_text("m2m1")
        page.set_viewport_size({"width": 360, "height": 740})
        until(lambda: has_no_sideways_scroll(page))  # charts are drawn anew


def test_a_producer_shows_its_buffer_and_who_waits(start, until, opened, expect):
    """And how the others stand, whether they answer or not."""
    ports = free_ports(2)
    urls = [f"127.0.0.1:{port}" for port in ports]
    command = [sys.executable, "-m", "spillover", "queue", "--buffers", "3"]
    told = (("p1", 0, "p2", 1), ("p2", 1, "p1", 0))
    members = [
        start(*command, "--id", own, "--bind", urls[k], "--peer", f"{peer}=http://{urls[other]}")
        for own, k, peer, other in told
    ]
    until(lambda: all("ready" in one.stdout for one in members), 30.0)
    first, second = (Producer(f"http://{url}") for url in urls)
    with ThreadPoolExecutor() as pool, opened(first.url) as page:
        waiting = pool.submit(first.take, consumer="me", access={"p1": 1.0})
        expect(page.locator("#parked tbody")).to_contain_text("me")
        expect(page.locator("#takes tbody")).to_contain_text("me")
        for _ in range(3):
            first.put(b"x")
        assert waiting.result().status == 200
        expect(tile(page, "buffered")).to_have_text("2 of 3")
        expect(page.locator('#buffer [data-state="held"]')).to_have_count(2)
        expect(page.locator("#grants tbody")).to_contain_text("given")
        expect(page.locator("#durable")).to_contain_text("lost with the process")
        second.put(b"y")
        expect(page.locator("#producers tbody tr").nth(1)).to_contain_text("1 of 3")
        members[1].process.kill()
        expect(page.locator("#producers tbody tr").nth(1)).to_contain_text("does not answer")
        page.set_viewport_size({"width": 360, "height": 740})
        until(lambda: has_no_sideways_scroll(page))
