// The view of a node: the whole federation, as this cluster sees it, and its own decisions.

import { Chart } from "./charts.js";
import { ClusterPanel } from "./cluster.js";
import { Decisions } from "./decisions.js";
import { color, el, health, milliseconds, rate, set } from "./dom.js";
import { Flows } from "./flows.js";
import { FederationMap } from "./map.js";
import { Members, named } from "./members.js";

const TILES = ["clusters", "waiting", "busy servers", "requests", "handed on", "failed", "refused", "mean time", "worst p99"];
const FAILURES = [{ word: "failed" }, { word: "refused", dash: [5, 4] }];

export function nodeView(place) {
  return new NodeView(place);
}

class NodeView {
  constructor(place) {
    this.flows = new Flows();
    this.tiles = new Tiles(TILES);
    this.legend = el("div", { class: "legend" });
    this.panel = new ClusterPanel();
    this.members = new Members();
    this.decisions = new Decisions();
    const mapPlace = el("div", { class: "drawing" });
    const queuePlace = el("div", { class: "plot", id: "queue-lines" });
    const failurePlace = el("div", { class: "plot", id: "failure-lines" });
    const [halfPlace, mostPlace] = ["p50-lines", "p99-lines"].map((id) => el("div", { class: "plot", id }));
    const small = (text) => el("small", { class: "muted", text });
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
        el("section", { class: "card" }, el("h2", {}, "Failures and refusals ", small("of each cluster’s clients, per second; refusals are dashed")), failurePlace),
        el("section", { class: "card" }, el("h2", {}, "System time, p50 ", small("half are faster; of the last 10 s")), halfPlace),
        el("section", { class: "card" }, el("h2", {}, "System time, p99 ", small("99 of 100 are faster; of the last 10 s")), mostPlace),
      ),
      this.members.card,
      this.decisions.card,
      this.decisions.explanation.dialog,
    );
    place.hidden = false; // else nothing has a size yet
    this.map = new FederationMap(mapPlace, (id) => this.#choose(id));
    const calm = "No client’s request failed or was refused in this time.";
    this.charts = {
      queue: new Chart(queuePlace, { format: String, step: true, least: 5 }),
      failures: new Chart(failurePlace, { format: (value) => `${rate(value)}/s`, layers: FAILURES, calm }),
      p50: new Chart(halfPlace, { format: milliseconds, least: 50 }),
      p99: new Chart(mostPlace, { format: milliseconds, least: 50 }),
    };
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
    const { times } = this.flows;
    for (const kind of ["queue", "p50", "p99"]) this.charts[kind].show(times, lines(kind));
    this.charts.failures.show(times, lines("failed"), lines("refused"));
  }

  recolor() {
    if (this.frame === undefined) return;
    this.map.recolor();
    this.shown = "";
    this.#draw();
    for (const chart of Object.values(this.charts)) chart.redraw();
  }

  #choose(id) {
    this.marked = this.marked === id ? null : id;
    this.chosen = id;
    for (const chart of Object.values(this.charts)) chart.choose(this.marked);
    this.#draw();
  }

  #draw() {
    this.map.show(this.frame, this.flows, this.chosen);
    this.panel.show(this.frame, this.flows, this.chosen);
    this.members.show(this.frame);
    this.#legend();
  }

  #legend() {
    const { clusters } = this.frame;
    const shown = JSON.stringify([clusters.map((one) => [one.id, health(one)]), this.marked]);
    if (shown === this.shown) return;
    this.shown = shown;
    const chips = clusters.map((one, index) => {
      const { id } = one;
      const name = health(one) === "well" ? id : `${id}, ${health(one)}`;
      const chip = el("i", { class: "chip" });
      chip.style.background = color(index, clusters.length);
      const pressed = this.marked === id ? "true" : "false";
      return el("button", { type: "button", "aria-pressed": pressed, onclick: () => this.#choose(id) }, chip, name);
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
    const [arrived, failed, refused] = ["arrived", "failed", "refused"].map((kind) => sum(flows.map((one) => one[kind])));
    const slowest = Math.max(...up.map((one) => one.recent.p99_ms ?? -Infinity));
    const degraded = up.filter((one) => health(one) === "degraded").length;
    const versions = new Set(up.map((one) => named(one.configuration))).size;
    const wrong = degraded > 0 ? `${degraded} degraded` : versions > 1 ? `in ${versions} versions` : null;
    const all = this.frame.clusters.length;
    this.tiles.show([
      [`${up.length} of ${all}`, up.length < all || wrong !== null, wrong ?? "clusters"],
      [sum(up.map((one) => one.queue_length))],
      [`${sum(up.map((one) => one.busy))}/${sum(up.map((one) => one.servers))}`],
      [`${rate(arrived)}/s`],
      [`${rate(out)}/s`],
      [`${rate(failed)}/s`, failed > 0],
      [`${rate(refused)}/s`, refused > 0],
      [done > 0 ? milliseconds(system) : "–"],
      [milliseconds(slowest)],
    ]);
  }
}

export class Tiles {
  constructor(names) {
    this.values = names.map((name) => el("b", { "data-tile": name, text: "–" }));
    this.names = names.map((name) => el("span", { text: name }));
    const items = names.map((_, index) => el("li", {}, this.values[index], this.names[index]));
    this.list = el("ul", { class: "tiles" }, items);
  }

  /** [text, is it alarming, another name for now] for each. */
  show(values) {
    values.forEach(([text, alarming = false, name = null], index) => {
      if (name !== null) set(this.names[index], "text", name);
      set(this.values[index], "text", text);
      set(this.values[index], "class", alarming ? "alarming" : null);
    });
  }
}
