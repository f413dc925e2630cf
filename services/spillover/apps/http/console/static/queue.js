// The view of a producer of the distributed queue: its buffer, who waits, what was promised to whom,
// and how the other producers stand.

import { Chart } from "./charts.js";
import { duration, el, set, webAddress } from "./dom.js";
import { Tiles } from "./node.js";
import { Operate } from "./operate.js";

const SECONDS_KEPT = 120;
const PLACES_DRAWN = 64;
const FLOWS = { in: "produced", out: "acknowledged", back: "returned" };

export function queueView(place) {
  return new QueueView(place);
}

class QueueView {
  constructor(place) {
    this.times = [];
    this.lines = new Map(Object.keys(FLOWS).map((flow) => [flow, []]));
    this.before = null;
    this.tiles = new Tiles(["buffered", "granted", "dead", "producers wait", "consumers wait", "oldest object", "in memory"]);
    this.buffer = el("div", { class: "partitions", id: "buffer" });
    this.note = el("p", { class: "muted small", id: "durable" });
    this.operate = new Operate({ drain: "Take no object any more?", resume: "Take objects again?" });
    this.tables = {
      producers: ["producer", "buffered", "granted", "dead", "produced", "acknowledged", "parked"],
      parked: ["probe", "consumer", "its call is held by", "waits for"],
      takes: ["probe", "consumer", "waits for"],
      grants: ["object", "delivery", "bytes", "standing", "ends in"],
    };
    const titles = { producers: "Producers", parked: "Probes that wait here", takes: "Consumers' calls held here", grants: "Grants" };
    this.rows = {};
    const card = (name) => {
      this.rows[name] = el("tbody");
      const head = el("thead", {}, el("tr", {}, this.tables[name].map((text) => el("th", { scope: "col", text }))));
      return el("section", { class: "card", id: name }, el("h2", { text: titles[name] }), el("div", { class: "scroll" }, el("table", {}, head, this.rows[name])));
    };
    const plot = el("div", { class: "plot", id: "flow-lines" });
    place.replaceChildren(
      this.tiles.list,
      el(
        "div",
        { class: "columns wide-left" },
        el("section", { class: "card" }, el("h2", { text: "Buffer" }), this.buffer, this.note),
        el("aside", { class: "card" }, el("h2", { text: "Objects per second" }), plot, this.operate.place),
      ),
      card("producers"),
      el("div", { class: "columns" }, card("parked"), card("takes")),
      card("grants"),
    );
    place.hidden = false;
    this.chart = new Chart(plot, { format: (value) => value.toFixed(1), least: 1 });
  }

  hello(told) {
    this.own = told.name;
    this.operate.hello(told, `spillover drain ${location.origin}`);
  }

  update(state) {
    this.state = state;
    this.#line(state);
    if (!document.hidden) this.#draw(state);
  }

  recolor() {
    this.chart.redraw();
  }

  #draw(state) {
    this.tiles.show([
      [`${state.buffered} of ${state.buffers}`, state.buffered >= state.buffers],
      [state.granted],
      [state.dead, state.dead > 0],
      [state.waiting, state.waiting > 0],
      [state.takes],
      [state.buffered > 0 ? duration(state.oldest_ms.object / 1000) : "–"],
      [`${(state.memory_bytes / 1e6).toFixed(1)} MB`],
    ]);
    this.#places(state);
    const outlive = state.durable ? "Objects outlive the process: they are on the disk." : "Objects are in memory alone: they are lost with the process.";
    set(this.note, "text", state.draining ? `${outlive} Draining: nothing is taken in.` : outlive);
    this.#table("producers", [{ ...state }, ...state.others], (one) => {
      const name = one.producer === this.own ? `${one.producer} (this one)` : one.producer;
      const page = state.peers[one.producer] === undefined ? null : webAddress(state.peers[one.producer], "/console");
      const told = one.buffered === undefined ? ["does not answer", "", "", "", "", ""] : [`${one.buffered} of ${one.buffers}`, one.granted, one.dead, one.produced, one.acknowledged, one.parked];
      return [page === null ? name : el("a", { href: page, text: name }), ...told];
    });
    const waits = (one) => duration(one.waits_ms / 1000);
    this.#table("parked", state.parked_probes, (one) => [one.probe_id, one.consumer, one.held_by, waits(one)]);
    this.#table("takes", state.waiting_takes, (one) => [one.probe_id, one.consumer, waits(one)]);
    this.#table("grants", state.open_grants, (one) => [one.number, one.deliveries, one.size_bytes, one.state, duration(Math.max(0, one.ends_in_ms / 1000))]);
    this.chart.show(this.times, this.lines);
    this.operate.show([state.draining ? "resume" : "drain"]);
  }

  #places(state) {
    const count = Math.min(PLACES_DRAWN, Math.max(state.buffers, state.buffered));
    while (this.buffer.childElementCount > count) this.buffer.lastChild.remove();
    while (this.buffer.childElementCount < count) this.buffer.append(el("div", {}, el("b"), el("span")));
    [...this.buffer.children].forEach((cell, index) => {
      const full = index < state.buffered;
      set(cell, "data-state", full ? "held" : "free");
      set(cell.lastChild, "text", full ? "object" : "free");
    });
  }

  #table(name, found, cells) {
    const rows = found.map((one) => el("tr", {}, cells(one).map((cell) => el("td", typeof cell === "object" ? {} : { text: cell }, typeof cell === "object" ? cell : null))));
    if (rows.length === 0) rows.push(el("tr", {}, el("td", { colspan: this.tables[name].length, class: "muted", text: "none" })));
    this.rows[name].replaceChildren(...rows);
  }

  #line(state) {
    const now = Date.now() / 1000;
    const before = this.before;
    this.before = { at: now, epoch: state.epoch, ...state };
    if (before === null || before.epoch !== state.epoch) return;
    this.times.push(now);
    for (const [flow, line] of this.lines) line.push((state[FLOWS[flow]] - before[FLOWS[flow]]) / Math.max(0.001, now - before.at));
    while (this.times[0] < now - SECONDS_KEPT) {
      this.times.shift();
      for (const line of this.lines.values()) line.shift();
    }
  }
}
