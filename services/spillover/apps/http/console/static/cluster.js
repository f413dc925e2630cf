// One cluster at a closer look: its figures, what it believes of its neighbors, and what can be done.

import { color, duration, el, health, milliseconds, percent, rate, set, share, webAddress } from "./dom.js";
import { configuration, winner } from "./members.js";
import { Operate } from "./operate.js";
import { Pool } from "./pool.js";

const NOTICES = {
  degraded: "of the work run here fails. Neighbors give this cluster nothing, its own clients’ work goes to them, and a little of it still runs here to find out when all is well again.",
  recovering: "of the work run here failed of late. It works again, and gets more of it step by step.",
};

export class ClusterPanel {
  constructor() {
    this.name = el("h2");
    this.badge = el("span", { class: "badge" });
    this.chip = el("i", { class: "chip" });
    this.notice = el("p", { class: "notice", role: "status", hidden: true });
    this.facts = el("dl", { class: "facts" });
    this.values = new Map();
    this.body = el("tbody");
    this.operate = new Operate({
      drain: "Accept nothing more, and hand the queue to neighbors?",
      resume: "Accept requests again?",
    });
    this.elsewhere = el("p", { class: "small" });
    this.table = el(
      "div",
      { class: "scroll" },
      el("table", {}, el("caption", { text: "What it believes of its neighbors" }), head(), this.body),
    );
    this.pool = new Pool();
    this.card = el(
      "aside",
      { class: "card", id: "cluster" },
      el("div", { class: "head" }, el("div", { class: "named" }, this.chip, this.name, this.badge)),
      this.notice,
      this.facts,
      this.pool.place,
      this.table,
      this.operate.place,
      this.elsewhere,
    );
  }

  hello(told) {
    this.own = told.name;
    const here = new URL(".", location.href).href.replace(/\/$/, "");
    this.operate.hello(told, `spillover drain ${here}`);
  }

  show(frame, flows, chosen) {
    const index = frame.clusters.findIndex((one) => one.id === chosen);
    const state = frame.clusters[index];
    if (state === undefined) return;
    this.chip.style.background = color(index, frame.clusters.length);
    set(this.name, "text", `Cluster ${state.id}`);
    const [word, kind] = standing(state);
    set(this.badge, "text", word);
    set(this.badge, "data-outcome", kind);
    this.#notice(state);
    this.table.hidden = state.unreachable === true;
    const winning = winner(frame.clusters);
    this.#facts(state.unreachable ? gone(state) : figures(state, flows.of(state.id), winning));
    if (!state.unreachable) this.#neighbors(state.neighbors);
    this.pool.show(state.tokens);
    this.#operate(state);
  }

  #notice(state) {
    const words = NOTICES[health(state)];
    this.notice.hidden = words === undefined;
    set(this.notice, "data-health", health(state));
    if (words !== undefined) set(this.notice, "text", `${percent(state.failed_share)} ${words}`);
  }

  #facts(rows) {
    const names = rows.map(([name]) => name).join("\n");
    if (names !== this.names) {
      this.names = names;
      this.values = rows.map(() => el("dd"));
      this.facts.replaceChildren(...rows.flatMap(([name], index) => [el("dt", { text: name }), this.values[index]]));
    }
    rows.forEach(([, value], index) => set(this.values[index], "text", value));
  }

  #neighbors(rows) {
    while (this.body.children.length > rows.length) this.body.lastChild.remove();
    while (this.body.children.length < rows.length) {
      this.body.append(el("tr", {}, el("th", { scope: "row" }), Array.from({ length: 4 }, () => el("td"))));
    }
    rows.forEach((one, index) => {
      const row = this.body.children[index];
      const cut = one.link?.cut ? " (cut)" : one.degraded ? " (degraded)" : "";
      const known = one.alive;
      const cells = [
        `${one.id}${cut}`,
        known ? one.queue_length : "?",
        known ? share(one.accept_probability) : "?",
        known ? share(one.neighborhood_accept_probability) : "?",
        one.age_ms === null ? "never" : one.age_ms < 10_000 ? milliseconds(one.age_ms) : duration(one.age_ms / 1000),
      ];
      cells.forEach((text, cell) => set(row.children[cell], "text", text));
      set(row, "class", known ? null : "unknown");
    });
  }

  #operate(state) {
    const own = state.id === this.own;
    this.operate.place.hidden = !own;
    if (own) this.operate.show(state.unreachable ? [] : state.draining ? ["resume"] : ["drain"]);
    const address = own ? null : webAddress(state.url, "/console");
    const shown = `${state.id} ${own} ${address}`;
    if (shown === this.shown) return;
    this.shown = shown;
    const words = "Its decisions, drain and resume are at ";
    const link = address && el("a", { href: address, rel: "noreferrer", text: "its own console" });
    this.elsewhere.replaceChildren(...(own ? [] : [words, link ?? "its own node", "."]));
  }
}

function head() {
  const titles = ["neighbor", "N", "P", "R", "age"];
  return el("thead", {}, el("tr", {}, titles.map((text) => el("th", { scope: "col", text }))));
}

function standing(state) {
  if (state.unreachable) return ["unreachable", "refused"];
  if (state.down) return ["servers down", "refused"];
  if (state.configuration.removed) return [state.drained ? "removed, drained" : "removed, draining", "kept"];
  if (state.drained) return ["drained", "kept"];
  if (state.draining) return ["draining", "kept"];
  if (health(state) === "degraded") return ["degraded", "refused"];
  if (health(state) === "recovering") return ["recovering", "kept"];
  return ["up", "started"];
}

function gone(state) {
  const seen = state.last_seen_s === null ? "never" : `${duration(state.last_seen_s)} ago`;
  return [["last heard of", seen]];
}

function figures(state, flow, winning) {
  const out = flow === null ? NaN : [...flow.forwards.values()].reduce((sum, one) => sum + one, 0);
  const rows = [
    ["waiting, N", state.queue_length],
    ["busy servers", `${state.busy} of ${state.servers}`],
    ["accepts, P", share(state.accept_probability)],
    ["with neighbors, R", share(state.neighborhood_accept_probability)],
    ["own requests", `${rate(flow?.arrived)}/s`],
    ["handed on", `${rate(out)}/s`],
    ["of these, asked for", `${rate(flow?.pulled)}/s`],
    ["failed", `${rate(flow?.failed)}/s`],
    ["refused", `${rate(flow?.refused)}/s`],
    ["work that fails", percent(state.failed_share)],
    ["p50, p99", `${milliseconds(state.recent.p50_ms)}, ${milliseconds(state.recent.p99_ms)}`],
    ["mean system time", milliseconds(flow?.system_ms)],
    ["policy", state.policy],
    ["configuration", configuration(state, winning)],
    ["home load", share(state.home_load)],
    ["neighbors’ requests waiting", state.foreign_waiting],
  ];
  if (state.tokens) {
    rows.push(["tokens held", `${state.tokens.held} of ${state.tokens.limit}`]);
    rows.push(["jobs on servers", state.tokens.jobs]);
  }
  if (state.shadow) rows.push([`shadow ${state.shadow.policy}`, shadow(state.shadow)]);
  if (state.rejected > 0) rows.push(["rejected", `${rate(flow?.rejected)}/s, their clients’ fault`]);
  if (state.clients.connected > 0) rows.push(["clients connected", state.clients.connected]);
  if (state.stuck > 0) rows.push(["stuck servers", state.stuck]);
  return rows;
}

/** How often it would have chosen otherwise, and by how much sooner that would have been. */
function shadow({ same, other, saved_ms, lost_ms }) {
  if (same + other === 0) return "not asked yet";
  const differs = `differs in ${percent(other / (same + other))}`;
  if (other === 0) return differs;
  const gain = (saved_ms - lost_ms) / other;
  return `${differs}, there ${milliseconds(Math.abs(gain))} ${gain >= 0 ? "sooner" : "later"}`;
}
