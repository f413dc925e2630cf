"""What the console makes of values that it is given: charts, words, the story of one request, and
its connection.
"""

from datetime import datetime, timedelta

from support import console_parts
from support.console_parts import evaluate, page_at_rest, script

page = console_parts.page
run = console_parts.run


STREAM = script("stream")

HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_connection_is_kept_up(chromium, until):
    """What comes in pieces is put together; silence is no life; who ends is asked again at once,
    and after a second where nobody answers; a page that nobody sees sleeps; a bug is seen."""
    with page_at_rest(chromium) as page:
        keeps_up(page, until)


def keeps_up(page, until):
    page.clock.install()
    page.clock.pause_at(datetime.now() + timedelta(hours=1))  # noqa: DTZ005 - as browsers tell it

    def told(count=1):
        """What was told since the last time: so much, and nothing else."""
        until(lambda: page.evaluate("told.length") >= count)
        return page.evaluate("told.splice(0)")

    evaluate(page, STREAM)
    live = ["state", ["live", ""]]
    assert told(3) == [live, ["hello", {"n": 1}], ["update", 2]]
    page.clock.run_for(3_900)
    assert told(0) == []
    page.clock.run_for(200)
    silent = "It says nothing any more, though the connection stands."
    assert told() == [["state", ["lost", silent]]]
    page.evaluate("pieces.push(['event: update\\ndata: 3\\n\\n'])")
    page.clock.run_for(1_000)
    assert told(2) == [live, ["update", 3]]
    page.evaluate("hang()")
    nobody = ["state", ["lost", "Nobody answers there."]]
    assert told() == [nobody]
    page.clock.run_for(1)
    assert told() == [nobody], "it was asked again at once"
    asked = page.evaluate("asked")
    page.clock.run_for(900)
    assert page.evaluate("asked") == asked
    page.evaluate("pieces.push(['event: update\\ndata: 4\\n\\n'])")
    page.clock.run_for(200)
    assert told(2) == [live, ["update", 4]]
    page.evaluate(HIDE, True)
    page.clock.run_for(3_000)
    page.evaluate(HIDE, False)
    assert told(0) == [], "it was not looked away from for long"
    page.evaluate(HIDE, True)
    page.evaluate("clearTimeout(connection.timers.silent)")  # as if something had come
    page.clock.run_for(15_100)
    assert told() == [["state", ["asleep", ""]]]
    page.evaluate("pieces.push(['event: update\\ndata: {\\n\\n'])")
    page.evaluate(HIDE, False)
    assert told(2) == [live, ["bug", "SyntaxError"]]


EXPLAINED = script("explained")

KNOWN = {"accept_probability": 0.25, "neighborhood_accept_probability": 0.5, "queue_length": 3}
ASKED = KNOWN | {"policy": "paper", "servers": 5, "draw": 0.125, "hops": 1, "service_ms": 40.0}
ROW = {"id": "b", "alive": True, "age_ms": 40.0, "delay_ms": 5.0, "eligible": True, "weight": 0.75}
LOAD_TOLD = {"load_age_ms": 30.0, "ahead": 2, "unreported": 6, "load": 0.875, "wait_ms": 70.0}
ROWS = [
    KNOWN | ROW | LOAD_TOLD | {"in_all_ms": 80.0},
    KNOWN | ROW | {"id": "c", "alive": False, "load_age_ms": None, "eligible": False},
]
TOKEN = {"token": "c-1", "class": "c", "server": "s1", "available_ms": 20.0}
TOKEN |= {"available_releases": 3, "left_out": ["s2"]}
STORY = [
    {"event": "decided", "at_ms": 1.0},
    {"event": "refused_by", "neighbor": "b", "at_ms": 12.0},
    {"event": "decided", "at_ms": 12.0},
    {"event": "not_started", "server": "s1", "problem": "busy", "upstream_status": 503},
    {"event": "decided", "at_ms": 13.0},
    {"event": "pulled_by", "neighbor": "d", "granted": TOKEN},
    {
        "event": "ended",
        "outcome": "done",
        "at_ms": 99.6,
        "queued_ms": 1.0,
        "network_ms": 2.0,
        "service_ms": 3.0,
        "path": ["a", "b"],
    },
]
DECIDED = [
    {"outcome": "forwarded", "neighbor": "b", "neighbors": ROWS},
    {"outcome": "kept", "may_keep": False, "older_went_to": "c", "shadow": {"words": "So."}},
    {"outcome": "started", "busy": 4, "granted": TOKEN},
    {"outcome": "refused", "reason": "queue_full", "by_load": {"words": "Long."}},
]
GIVEN = (
    "Token c-1 of class c, on server s1, not again on s2: no other was there (available for "
    "20 ms, 3 releases)."
)
TOLD = [
    "+1.0 msHanded on to b.",
    *("paper", "3", "5", "0.25", "0.50", "40 ms", "0.1250", "1"),
    (
        "neighbor | N | P | R | age | delay | weight | load told | ahead | sent since | "
        "home load | wait there | in all"
    ),
    "> b | 3 | 0.25 | 0.50 | 40 ms | 5.0 ms | 0.750 | 30 ms ago | 2 | 6 | 0.88 | 70 ms | 80 ms",
    "c | ? | ? | ? | unknown | 5.0 ms | not eligible | never |  |  |  |  | ",
    "+12 msrefused by b",
    (
        "+12 msIt could not be kept, and no neighbor would take it: it waits all the same. "
        "One that waits longer went to c in its place."
    ),
    *("paper", "3", "no", "0.25", "0.50", "40 ms", "0.1250", "1"),
    "So.",
    "not started on server s1 (busy) with 503 from the upstream",
    "+13 msA server was free, so it started at once.",
    GIVEN,
    "Now 4 of 5 servers are busy.",
    "handed on to a neighbor that had an idle server and asked for work: d",
    GIVEN,
    "+100 msended done: 1.0 ms waiting, 2.0 ms on the network, 3.0 ms of service, by way of a → b",
    "Refused.",
    *("queue_full", "paper", "3", "5", "0.25", "0.50", "40 ms", "0.1250", "1"),
    "Long.",
]


def test_a_story_is_told_whole_and_is_that_of_the_last_one_asked_for(run, page):
    """Each decision at its place in it, with its grounds; what is left belongs to a node that tells
    no story. An answer that comes late does not take the place of another one."""
    late = []
    told = {"story": STORY, "decisions": [ASKED | one for one in DECIDED]}

    def answer(route):
        if route.request.url.endswith("slow"):
            late.append(route)
            return
        route.fulfill(json=told)
        late[0].fulfill(status=404, json={"detail": "forgotten"})

    page.route("**/explain/*", answer)
    assert run(EXPLAINED) == TOLD
    page.unroute("**/explain/*")
