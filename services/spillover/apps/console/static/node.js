// The view of a node: the whole federation, as this cluster sees it, and its own decisions.

import { Chart } from "./charts.js";
import { ClusterPanel } from "./cluster.js";
import { Decisions } from "./decisions.js";
import { color, el, milliseconds, rate, set } from "./dom.js";
import { Flows } from "./flows.js";
import { FederationMap } from "./map.js";

export function nodeView(place) {
  return new NodeView(place);
}

class NodeView {
  constructor(place) {
    this.flows = new Flows();
    this.tiles = new Tiles(["clusters", "waiting", "busy servers", "requests", "mean system time", "handed on"]);
    this.legend = el("div", { class: "legend" });
    this.panel = new ClusterPanel();
    this.decisions = new Decisions();
    const mapPlace = el("div", { class: "drawing" });
    const queuePlace = el("div", { class: "plot", id: "queue-lines" });
    const systemPlace = el("div", { class: "plot", id: "system-lines" });
    const note = "In the disc: requests waiting. Its ring: busy servers. Arrows: requests handed on, per second.";
    place.replaceChildren(
      this.tiles.list,
      el(
        "div",
        { class: "columns wide-left" },
        el("section", { class: "card", id: "map" }, el("h2", { text: "Clusters" }), mapPlace, el("p", { class: "muted small", text: note })),
        this.panel.card,
      ),
      this.legend,
      el(
        "div",
        { class: "columns" },
        el("section", { class: "card" }, el("h2", { text: "Waiting requests" }), queuePlace),
        el("section", { class: "card" }, el("h2", {}, "System time ", el("small", { class: "muted", text: "mean of each second" })), systemPlace),
      ),
      this.decisions.card,
      this.decisions.explanation.dialog,
    );
    place.hidden = false; // else nothing has a size yet
    this.map = new FederationMap(mapPlace, (id) => this.#choose(id));
    this.queues = new Chart(queuePlace, { format: String, step: true, least: 5 });
    this.systems = new Chart(systemPlace, { format: milliseconds, least: 50 });
    this.marked = null;
  }

  hello(told) {
    this.chosen ??= told.name;
    this.panel.hello(told);
    this.decisions.hello(told);
  }

  update(frame) {
    this.frame = frame;
    this.flows.add(frame);
    if (document.hidden) return;
    this.#draw();
    this.decisions.show(frame);
    this.#tiles();
    const lines = (kind) => new Map([...this.flows.lines].map(([id, line]) => [id, line[kind]]));
    this.queues.show(this.flows.times, lines("queue"));
    this.systems.show(this.flows.times, lines("system"));
  }

  recolor() {
    if (this.frame === undefined) return;
    this.map.recolor();
    this.shown = "";
    this.#draw();
    this.queues.redraw();
    this.systems.redraw();
  }

  #choose(id) {
    this.marked = this.marked === id ? null : id;
    this.chosen = id;
    this.queues.choose(this.marked);
    this.systems.choose(this.marked);
    this.#draw();
  }

  #draw() {
    this.map.show(this.frame, this.flows, this.chosen);
    this.panel.show(this.frame, this.flows, this.chosen);
    this.#legend();
  }

  #legend() {
    const { clusters } = this.frame;
    const shown = JSON.stringify([clusters.map((one) => one.id), this.marked]);
    if (shown === this.shown) return;
    this.shown = shown;
    const chips = clusters.map(({ id }, index) => {
      const chip = el("i", { class: "chip" });
      chip.style.background = color(index, clusters.length);
      const pressed = this.marked === id ? "true" : "false";
      return el("button", { type: "button", "aria-pressed": pressed, onclick: () => this.#choose(id) }, chip, id);
    });
    this.legend.replaceChildren(...chips);
  }

  #tiles() {
    const up = this.frame.clusters.filter((one) => !one.unreachable);
    const flows = up.map((one) => this.flows.of(one.id)).filter((one) => one !== null);
    const sum = (values) => values.reduce((total, value) => total + value, 0);
    const done = sum(flows.map((one) => one.done));
    const system = sum(flows.map((one) => (one.system_ms ?? 0) * one.done)) / done;
    const out = sum(flows.map((one) => sum([...one.forwards.values()])));
    const arrived = sum(flows.map((one) => one.arrived));
    this.tiles.show([
      [`${up.length} of ${this.frame.clusters.length}`, up.length < this.frame.clusters.length],
      [sum(up.map((one) => one.queue_length))],
      [`${sum(up.map((one) => one.busy))} of ${sum(up.map((one) => one.servers))}`],
      [`${rate(arrived)}/s`],
      [done > 0 ? milliseconds(system) : "–"],
      [`${rate(out)}/s`],
    ]);
  }
}

export class Tiles {
  constructor(names) {
    this.values = names.map((name) => el("b", { "data-tile": name, text: "–" }));
    const items = names.map((name, index) => el("li", {}, this.values[index], el("span", { text: name })));
    this.list = el("ul", { class: "tiles" }, items);
  }

  /** [text, is it alarming] for each. */
  show(values) {
    values.forEach(([text, alarming = false], index) => {
      set(this.values[index], "text", text);
      set(this.values[index], "class", alarming ? "alarming" : null);
    });
  }
}
