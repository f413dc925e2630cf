"""What the console's charts, words and connection make of what they are given."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from support import console_parts
from support.console_parts import evaluate, page_at_rest

page = console_parts.page
run = console_parts.run

pytestmark = pytest.mark.threes


LINES = """async (load, { shown, at }) => {
  const { Chart } = await load("charts");
  const place = document.createElement("div");
  place.style.width = "800px";
  document.body.append(place);
  const layers = [{ word: "failed" }, { word: "refused" }];
  const format = (value) => `${value}/s`;
  const chart = new Chart(place, { format, least: 5, layers, calm: "calm" });
  const told = [];
  for (const { times, failed, refused } of shown) {
    chart.show(times, ...[failed, refused].map((lines) => new Map(Object.entries(lines))));
    await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
    const { x, y } = chart.plot.scales;
    chart.plot.setCursor({ left: at * chart.plot.over.clientWidth, top: 5 });
    await new Promise((drawn) => requestAnimationFrame(drawn));
    const named = [...chart.label.children].slice(1).map((one) => one.textContent);
    const read = chart.label.hidden ? null : named;
    told.push({ x: x.max - x.min, y: y.max, calm: !chart.calm.hidden, read });
  }
  const colors = (chosen) => {
    chart.choose(chosen);
    return chart.plot.series.slice(1, 3).map((line) => line.stroke());
  };
  const plain = colors(null);
  const chosen = [colors("a"), colors("nobody")];
  const faded = chosen.map((some) => some.map((one, at) => one === plain[at]));
  place.remove();
  return [told, faded];
}"""


def test_a_chart_shows_so_many_seconds_and_reads_the_largest_values(run):
    """Half a minute to two; at least as high as it is told to be. Named at the pointer are the
    largest, whichever layer they are of; one thing may be brought forward."""
    short = {"times": [100, 101, 110], "failed": {"a": [0, 0, 1], "b": [0, 0, 3]}}
    short["refused"] = {"a": [0, 0, 2], "b": [0, 0, 0]}
    ten = [f"k{number}" for number in range(10)]
    long = {"times": [100, 200, 300], "failed": {one: [0, 0, 50 - k] for k, one in enumerate(ten)}}
    long["refused"] = {one: [None, None, None] for one in ten}
    calm = {"times": [100, 200], "failed": {"a": [0, 0], "b": [0, None]}}
    calm["refused"] = calm["failed"]
    told, faded = run(LINES, {"shown": [short, long, calm], "at": 0.999})
    assert told[0]["read"] == ["b 3/s failed", "a 2/s refused", "a 1/s failed"]
    assert told[1]["read"] == [
        *(f"k{number} {50 - number}/s failed" for number in range(8)),
        "and 2 more",
    ]
    assert told[2]["read"] is None
    assert [one["x"] for one in told] == [30, 120, 100]
    assert [one["y"] for one in told] == [5, pytest.approx(54), 5]
    assert [one["calm"] for one in told] == [False, False, True]
    assert faded == [[True, False], [True, True]]


WORDS = """async (load) => {
  const { color, duration, milliseconds, percent, webAddress } = await load("dom");
  return {
    duration: [3600, 7100, 7200, null].map((one) => duration(one ?? NaN)),
    milliseconds: [9.96, 9999, 10_000].map(milliseconds),
    percent: [0.0994, 0.0996, 0.5, NaN].map(percent),
    addresses: ["http://h:1/", "https://h", "ftp://h", "javascript:1//", null]
      .map((url) => webAddress(url, "/x")),
    colors: [5, 6, 20].map((count) => {
      return new Set(Array.from({ length: count }, (_, at) => color(at, count))).size;
    }),
  };
}"""


def test_values_in_words(run):
    assert run(WORDS) == {
        "duration": ["60 min", "118 min", "2 h", "never"],
        "milliseconds": ["10.0 ms", "9999 ms", "10.0 s"],
        "percent": ["9.9 %", "10 %", "50 %", "–"],  # noqa: RUF001 - as shown
        "addresses": ["http://h:1/x", "https://h/x", None, None, None],
        "colors": [5, 6, 20],
    }


KEPT = """async (load) => {
  const { wantsAnother } = await load("access");
  const { Flows } = await load("flows");
  const flows = new Flows();
  const frame = (at_ms, n) => ({ at_ms, clusters: [{
    id: "a", epoch: 1, queue_length: n, recent: { p50_ms: 1, p99_ms: 2 }, home: { accepted: 0 },
    answered: 0, failed: 4 * n, expired: 0, rejected: 0, refused: n, pulls: 0,
    system_time_sum_ms: 0, neighbors: [],
  }] });
  [frame(0, 0), frame(1000, 3)].forEach((one) => flows.add(one));
  const themes = [0, 1].map(() => {
    switchTheme();
    return [document.documentElement.dataset.theme, localStorage.getItem("spillover-theme")];
  });
  return [flows.lines.get("a"), [401, 403, 404].map((status) => wantsAnother({ status })), themes];
}"""


def test_what_is_kept_of_figures_tokens_and_themes(run):
    """A line for each figure; without an API token one with more rights would not help; the usual
    theme needs not be remembered."""
    lines, wants, themes = run(KEPT)
    assert lines == {
        "queue": [0, 3], "failed": [None, 12], "refused": [None, 3], "p50": [1, 1], "p99": [2, 2],
    }  # fmt: skip
    assert wants == [True, False, False]
    assert themes == [["dark", "dark"], ["light", None]]


STREAM = """async (load) => {
  const { Connection } = await load("connection");
  const told = window.told = [];
  const pieces = window.pieces = [];
  window.asked = 0;
  window.fetch = async (url, { signal }) => {
    if (url !== "told") throw new TypeError("not this one"); // the page's own connection
    window.asked += 1;
    const left = pieces.shift();
    if (left === undefined) throw new TypeError("nobody");
    const body = new ReadableStream({
      start(to) {
        window.hang = () => { try { to.close(); } catch { /* it was closed */ } };
        signal.addEventListener("abort", window.hang);
        for (const piece of left) to.enqueue(new TextEncoder().encode(piece));
      },
    });
    return new Response(body, { status: 200 });
  };
  const shown = (value) => (value.state ? [value.state, value.why] : value);
  const say = (name) => (value) => told.push([name, shown(value)]);
  addEventListener("unhandledrejection", (event) => {
    event.preventDefault();
    told.push(["bug", event.reason.name]);
  });
  const hello = 'event: hello\\ndata: {"n": 1}\\n\\n';
  const update = "event: update\\ndata: 2\\n\\n";
  pieces.push([hello.slice(0, 20), hello.slice(20) + update.slice(0, 9), `${update.slice(9)}eve`]);
  const names = ["hello", "update", "state", "denied"];
  const on = Object.fromEntries(names.map((name) => [name, say(name)]));
  window.connection = new Connection("told", on);
}"""

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
