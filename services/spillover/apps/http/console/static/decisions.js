// Recent decisions of this cluster, and why one of them was taken: asked of `/explain` on a click.

import { ask } from "./access.js";
import { duration, el, milliseconds, set, share } from "./dom.js";
import { granted } from "./pool.js";

const NOT_SHOWN = "not shown";

const KEPT_MAX = 300;
const SHOWN_MAX = 14;
const KINDS = ["all", "started", "kept", "forwarded", "refused"];

const REASONS = {
  started: "A server was free, so it started at once.",
  kept: "Kept in this cluster's queue.",
  forwarded: "Handed on to",
  refused: "Refused.",
};
const EVENTS = {
  pulled_by: "handed on to a neighbor that had an idle server and asked for work:",
  went_first: "handed on in place of a newer request, to",
  left_in_time: "handed on since it would have been late here, to",
  went_as_probe: "handed on, to see whether work still fails there, to",
};
const BY_LOAD = ["load told", "ahead", "sent since", "home load", "wait there", "in all"];
const KEPT_ALL_THE_SAME = "It could not be kept, and no neighbor would take it: it waits all the same.";

export class Decisions {
  constructor() {
    this.rows = new Map();
    this.kind = "all";
    this.held = false;
    this.body = el("tbody");
    this.note = el("p", { class: "muted small" });
    this.buttons = KINDS.map((kind) =>
      el("button", {
        type: "button",
        text: kind,
        "data-kind": kind,
        "aria-pressed": kind === this.kind ? "true" : "false",
        onclick: () => this.#choose(kind),
      }),
    );
    const titles = ["ago", "request", "outcome", "N", "busy", "P", "hops"];
    const heads = titles.map((text) => el("th", { text, class: `c-${text}`, scope: "col" }));
    const table = el("table", {}, el("thead", {}, el("tr", {}, heads)), this.body);
    const scroll = el("div", {
      class: "scroll",
      onpointerenter: (event) => (this.held = event.pointerType === "mouse"),
      onpointerleave: () => (this.held = false),
    });
    scroll.append(table);
    this.explanation = new Explanation();
    this.heading = el("h2", { text: "Recent decisions" });
    this.card = el(
      "section",
      { class: "card", id: "decisions" },
      el("div", { class: "head" }, this.heading, el("div", { class: "segments" }, this.buttons)),
      scroll,
      this.note,
    );
  }

  hello(told) {
    set(this.heading, "text", `Decisions of cluster ${told.name}`);
  }

  show(frame) {
    for (const one of [...frame.decisions].reverse()) this.rows.set(`${one.at_ms} ${one.id}`, one);
    const newest = [...this.rows.keys()];
    for (const key of newest.slice(0, Math.max(0, newest.length - KEPT_MAX))) this.rows.delete(key);
    const begun = frame.decisions.length > 0 && frame.at_ms < this.at_ms;
    if (begun) this.rows.clear(); // another service, and another clock
    this.at_ms = frame.at_ms;
    if (!this.held && !document.hidden) this.#draw();
  }

  #choose(kind) {
    this.kind = kind;
    for (const button of this.buttons) set(button, "aria-pressed", button.dataset.kind === kind ? "true" : "false");
    this.#draw();
  }

  #draw() {
    const wanted = [...this.rows.values()].reverse().filter((one) => this.kind === "all" || one.outcome === this.kind);
    const shown = wanted.slice(0, SHOWN_MAX);
    // Rows are used again: whoever has the keyboard on one keeps it.
    while (this.body.children.length > shown.length) this.body.lastChild.remove();
    while (this.body.children.length < shown.length) this.body.append(this.#row());
    shown.forEach((one, index) => this.#fill(this.body.children[index], one));
    const none = this.kind === "all" ? "No decisions yet: send this cluster a request." : `None was ${this.kind} of late.`;
    set(this.note, "text", shown.length === 0 ? none : "Press one to see why. The list rests under the pointer.");
  }

  #row() {
    const button = el("button", { type: "button", class: "link" });
    const badge = el("span", { class: "badge" });
    const cells = ["ago", "request", "outcome", "N", "busy", "P", "hops"].map((name) => el("td", { class: `c-${name}` }));
    cells[1].append(button);
    cells[2].append(badge);
    const row = el("tr", {}, cells);
    row.parts = { cells, button, badge };
    row.addEventListener("click", () => row.one.id !== "" && this.explanation.open(row.one.id));
    return row;
  }

  #fill(row, one) {
    row.one = one;
    const { cells, button, badge } = row.parts;
    set(cells[0], "text", duration(Math.max(0, this.at_ms - one.at_ms) / 1000));
    set(button, "text", one.id === "" ? NOT_SHOWN : one.id);
    set(button, "title", one.id === "" ? "a tenant's, who may ask for it by its name" : one.id);
    set(badge, "text", one.neighbor === null ? one.outcome : `→ ${one.neighbor}`);
    set(badge, "data-outcome", one.outcome);
    set(cells[3], "text", one.queue_length);
    set(cells[4], "text", `${one.busy}/${one.servers}`);
    set(cells[5], "text", share(one.accept_probability));
    set(cells[6], "text", one.hops);
  }
}

class Explanation {
  constructor() {
    this.content = el("div", { class: "content" });
    this.title = el("h2", { class: "request" });
    const close = el("button", { type: "button", text: "Close", class: "quiet", onclick: () => this.dialog.close() });
    this.dialog = el(
      "dialog",
      { id: "explanation", "aria-label": "why it was decided so" },
      el("div", { class: "head" }, this.title, close),
      this.content,
    );
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close(); // beside it
    });
  }

  async open(id) {
    this.id = id;
    set(this.title, "text", id);
    this.content.replaceChildren(el("p", { class: "muted", text: "asking …" }));
    if (!this.dialog.open) this.dialog.showModal();
    const parts = await explain(id);
    if (this.id === id) this.content.replaceChildren(...parts);
  }
}

async function explain(id) {
  try {
    const answer = await ask(`explain/${encodeURIComponent(id)}`);
    const told = await answer.json();
    if (answer.ok) return described(told);
    return [el("p", { text: `It is not remembered here: ${told.detail ?? answer.status}.` })];
  } catch {
    return [el("p", { text: "Nobody answers there." })];
  }
}

function described(told) {
  const decisions = [...told.decisions];
  const parts = told.story.map((record) => {
    if (record.event !== "decided") return event(record);
    return decision(decisions.shift() ?? record, record.at_ms);
  });
  return [...parts, ...decisions.map((one) => decision(one, null))];
}

function decision(one, at_ms) {
  const keptAnyway = one.outcome === "kept" && one.may_keep === false;
  let words = keptAnyway ? KEPT_ALL_THE_SAME : (REASONS[one.outcome] ?? one.outcome);
  if (one.neighbor) words += ` ${one.neighbor}.`;
  if (one.older_went_to) words += ` One that waits longer went to ${one.older_went_to} in its place.`;
  const parts = [el("h3", {}, time(at_ms), words)];
  if (one.outcome === "started") {
    const given = granted(one);
    if (given !== null) parts.push(el("p", { class: "granted", text: given }));
    parts.push(el("p", { class: "muted", text: `Now ${one.busy} of ${one.servers} servers are busy.` }));
    return el("section", { class: "decision" }, parts);
  }
  const facts = [
    ["policy", one.policy],
    ["N, waiting here", one.queue_length],
    one.may_keep === false ? ["may keep", "no"] : ["m, servers", one.servers],
    ["P, of this cluster", share(one.accept_probability)],
    ["R, with its neighbors", share(one.neighborhood_accept_probability)],
    ["service time", milliseconds(one.service_ms)],
    ["draw", Number(one.draw).toFixed(4)],
    ["hops so far", one.hops],
  ];
  if (one.reason) facts.unshift(["reason", one.reason]);
  parts.push(el("dl", { class: "facts" }, facts.flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })])));
  for (const told of [one.by_load, one.shadow]) {
    if (told?.words) parts.push(el("p", { text: told.words }));
  }
  if (one.neighbors?.length > 0) parts.push(neighbors(one));
  return el("section", { class: "decision" }, parts);
}

function neighbors(one) {
  const byLoad = one.neighbors.some((row) => "in_all_ms" in row);
  const titles = ["neighbor", "N", "P", "R", "age", "delay", "weight", ...(byLoad ? BY_LOAD : [])];
  const rows = one.neighbors.map((row) => {
    const known = row.alive;
    const weight = row.eligible ? Number(row.weight).toFixed(3) : row.eligible === false ? "not eligible" : "";
    const cells = [
      known ? row.queue_length : "?",
      known ? share(row.accept_probability) : "?",
      known ? share(row.neighborhood_accept_probability) : "?",
      known ? milliseconds(row.age_ms) : "unknown",
      milliseconds(row.delay_ms),
      weight,
      ...(byLoad ? load(row) : []),
    ];
    const chosen = row.id === one.neighbor;
    return el("tr", { class: chosen ? "chosen" : null }, el("th", { scope: "row", text: row.id }), cells.map((text) => el("td", { text })));
  });
  const head = el("tr", {}, titles.map((text) => el("th", { scope: "col", text })));
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, rows)));
}

/** What was known of a neighbor's load, and what that was taken to mean: the wait, and with the way. */
function load(row) {
  if (row.load_age_ms === null) return ["never", "", "", "", "", ""];
  const { load_age_ms, ahead, unreported, wait_ms, in_all_ms } = row;
  return [`${milliseconds(load_age_ms)} ago`, ahead, unreported, share(row.load), milliseconds(wait_ms), milliseconds(in_all_ms)];
}

function event(record) {
  const words = [EVENTS[record.event] ?? String(record.event).replaceAll("_", " "), record.neighbor, record.outcome].filter(Boolean);
  if (record.server) words.push(`on server ${record.server}`);
  if (record.problem) words.push(`(${record.problem})`);
  if (record.upstream_status) words.push(`with ${record.upstream_status} from the upstream`);
  const way = record.path?.length > 1 ? `, by way of ${record.path.join(" → ")}` : "";
  const times = record.event === "ended" ? `: ${milliseconds(record.queued_ms)} waiting, ${milliseconds(record.network_ms)} on the network, ${milliseconds(record.service_ms)} of service${way}` : "";
  const heading = el("h3", { class: "event" }, time(record.at_ms), words.join(" ") + times);
  const given = granted(record);
  return given === null ? heading : el("section", {}, heading, el("p", { class: "granted", text: given }));
}

function time(at_ms) {
  return Number.isFinite(at_ms) ? el("time", { text: `+${milliseconds(at_ms)}` }) : null;
}
