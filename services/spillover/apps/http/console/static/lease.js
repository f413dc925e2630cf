// The view of a lease member: who owns which partition, how that changed, and the members.

import { Chart } from "./charts.js";
import { color, duration, el, set } from "./dom.js";
import { Tiles } from "./node.js";
import { Operate } from "./operate.js";

const MOVES_MAX = 14;
const SECONDS_KEPT = 120;

export function leaseView(place) {
  return new LeaseView(place);
}

class LeaseView {
  constructor(place) {
    this.names = []; // the members in the order of their colors; null where one was forgotten
    this.owners = new Map();
    this.moves = [];
    this.times = [];
    this.lines = new Map();
    this.cells = [];
    this.tiles = new Tiles(["members", "partitions served", "moves seen here", "Redis", "renewals late by"]);
    this.grid = el("div", { class: "partitions", id: "partitions" });
    this.note = el("p", { class: "muted small" });
    this.members = el("tbody");
    this.list = el("tbody");
    this.operate = new Operate({ drain: "Hand all partitions over and end this member's process?" });
    const plot = el("div", { class: "plot", id: "held-lines" });
    const titles = (words) => el("thead", {}, el("tr", {}, words.map((text) => el("th", { scope: "col", text }))));
    place.replaceChildren(
      this.tiles.list,
      el(
        "div",
        { class: "columns wide-left" },
        el("section", { class: "card" }, el("h2", { text: "Who owns which partition" }), this.grid, this.note),
        el(
          "aside",
          { class: "card", id: "members" },
          el("h2", { text: "Members" }),
          el("div", { class: "scroll" }, el("table", {}, titles(["member", "holds", "alive for"]), this.members)),
          this.operate.place,
        ),
      ),
      el(
        "div",
        { class: "columns" },
        el("section", { class: "card" }, el("h2", { text: "Partitions held" }), plot),
        el(
          "section",
          { class: "card", id: "moves" },
          el("h2", { text: "Moves since this page is open" }),
          el("div", { class: "scroll" }, el("table", {}, titles(["at", "partition", "from", "to", "epoch"]), this.list)),
        ),
      ),
    );
    place.hidden = false;
    this.chart = new Chart(plot, { format: String, step: true, least: 4 });
  }

  hello(told) {
    this.own = told.name;
    this.operate.hello(told, null);
  }

  update(state) {
    this.state = state;
    for (const { node } of [...state.members, ...state.allocation]) {
      if (this.names.includes(node)) continue;
      const free = this.names.indexOf(null);
      this.names[free < 0 ? this.names.length : free] = node;
    }
    this.#moves(state);
    this.#line(state);
    if (!document.hidden) this.#draw();
  }

  recolor() {
    if (this.state === undefined) return;
    this.#draw();
    this.chart.redraw();
  }

  #draw() {
    const { state } = this;
    const served = state.allocation.filter(isServed);
    const late = state.renewal.lag_ms_max;
    this.tiles.show([
      [state.members.length],
      [`${served.length} of ${state.partitions}`, served.length < state.partitions],
      [this.moves.seen ?? 0],
      [state.redis.up ? "up" : "away", !state.redis.up],
      [`${Math.round(late)} ms`],
    ]);
    this.#grid(state);
    this.#members(state);
    this.chart.show(this.times, this.lines);
    this.operate.show(state.draining ? [] : ["drain"]);
  }

  #color(node) {
    return color(this.names.indexOf(node), this.names.length);
  }

  #grid(state) {
    if (this.cells.length !== state.partitions) {
      this.cells = Array.from({ length: state.partitions }, (_, index) => el("div", { "data-partition": index }, el("b", { text: index }), el("span")));
      this.grid.replaceChildren(...this.cells);
      set(this.grid, "data-many", state.partitions > 128);
    }
    const rows = new Map(state.allocation.map((row) => [row.partition, row]));
    this.cells.forEach((cell, index) => {
      const row = rows.get(index);
      const served = row !== undefined && isServed(row);
      const standing = !served ? "free" : row.stopping ? "stopping" : "held";
      set(cell, "data-state", standing);
      set(cell, "data-owner", served ? row.node : null);
      set(cell.lastChild, "text", served ? row.node : "free");
      const left = row?.lease_ms_left ? `, lease for ${duration(row.lease_ms_left / 1000)}` : "";
      set(cell, "title", served ? `partition ${index}: ${row.node}, epoch ${row.epoch}${left}${row.stopping ? ", stopping" : ""}` : `partition ${index}: nobody`);
      cell.style.setProperty("--own", served ? this.#color(row.node) : "transparent");
    });
    const age = state.as_of_s === null ? "Redis could never be read." : `As Redis had it ${duration(state.as_of_s)} ago.`;
    set(this.note, "text", state.redis.problem === null ? age : `${age} ${state.redis.problem}`);
  }

  #members(state) {
    const rows = state.members.map((one) => {
      const chip = el("i", { class: "chip" });
      chip.style.background = this.#color(one.node);
      const own = one.node === this.own ? " (this one)" : "";
      const alive = one.alive_for_ms === null ? "–" : duration(one.alive_for_ms / 1000);
      return el("tr", { "data-member": one.node }, el("th", { scope: "row" }, chip, one.node + own), el("td", { text: one.held }), el("td", { text: alive }));
    });
    this.members.replaceChildren(...rows);
  }

  #moves(state) {
    for (const row of state.allocation) {
      const before = this.owners.get(row.partition);
      if (before !== undefined && before.node !== row.node) {
        this.moves.unshift({ at: new Date(), from: before.node, ...row });
        this.moves.seen = (this.moves.seen ?? 0) + 1;
      }
      this.owners.set(row.partition, row);
    }
    this.moves.splice(MOVES_MAX);
    const shown = this.moves.map((move) => {
      const cells = [move.at.toLocaleTimeString([], { hour12: false }), move.partition, move.from, move.node, move.epoch];
      return el("tr", {}, cells.map((text) => el("td", { text })));
    });
    if (shown.length === 0) shown.push(el("tr", {}, el("td", { colspan: 5, class: "muted", text: "none yet" })));
    this.list.replaceChildren(...shown);
  }

  #line(state) {
    const now = Date.now() / 1000;
    const held = new Map(state.members.map((one) => [one.node, one.held]));
    for (const node of this.names) {
      if (node !== null && !this.lines.has(node)) this.lines.set(node, this.times.map(() => null));
    }
    this.times.push(now);
    for (const [node, line] of this.lines) line.push(held.get(node) ?? null);
    while (this.times[0] < now - SECONDS_KEPT) {
      this.times.shift();
      for (const line of this.lines.values()) line.shift();
    }
    this.#forget(new Set(state.allocation.map((row) => row.node)));
  }

  // Members that were away for as long as the time line reaches back: names of pods never end.
  #forget(owners) {
    for (const [node, line] of this.lines) {
      if (owners.has(node) || line.some((value) => value !== null)) continue;
      this.lines.delete(node);
      this.names[this.names.indexOf(node)] = null;
    }
  }
}

function isServed(row) {
  return row.lease_ms_left === null || row.lease_ms_left > 0;
}
