// Time lines, by uPlot. One line for each of some things, or one in each of several layers, which
// differ by their dashes; one of the things may be brought forward.

import { color, el, style } from "./dom.js";

const SECONDS_SHOWN = { least: 30, most: 120 };
const HEIGHT = 210;
const WHOLE = [1, 10, 100, 1000, 10_000].flatMap((ten) => [ten, 2 * ten, 5 * ten]);
const NAMED_MAX = 8; // in the label at the pointer

export class Chart {
  /** `format` makes words of a value; `step` draws levels, of whole numbers, instead of slopes.
   *  `layers`: {word, dash} of each; `calm` is said where all is 0. */
  constructor(place, { format, step = false, least = 1, layers = [{ word: "" }], calm = "" }) {
    this.place = place;
    this.format = format;
    this.step = step;
    this.least = least; // that the axis reaches
    this.ids = [];
    this.chosen = null;
    this.layers = layers;
    this.label = el("div", { class: "reading", hidden: true });
    this.calm = el("p", { class: "calm muted small", text: calm, hidden: true });
    if (calm) place.append(this.calm);
    new ResizeObserver(() => this.#resize()).observe(place);
  }

  /** `layers`: of each, id -> values, as long as `times`; the ids are the same in all. */
  show(times, ...layers) {
    const ids = [...layers[0].keys()];
    if (this.plot === undefined || ids.join("\n") !== this.ids.join("\n")) this.#make(ids);
    this.data = [times, ...layers.flatMap((lines) => ids.map((id) => lines.get(id)))];
    this.calm.hidden = this.data.slice(1).some((values) => values.some((value) => value > 0));
    if (this.waiting || document.hidden) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      this.plot.setData(this.data);
    });
  }

  choose(id) {
    if (this.chosen === id) return;
    this.chosen = id;
    this.redraw();
  }

  redraw() {
    this.plot?.redraw(false);
  }

  #make(ids) {
    this.plot?.destroy();
    this.ids = ids;
    const paths = this.step ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear();
    const series = this.layers.flatMap(({ dash }) =>
      ids.map((id, index) => ({
        label: id,
        scale: "y",
        paths,
        dash,
        spanGaps: false,
        points: { show: false },
        width: 1.5,
        stroke: () => this.#color(id, index),
      })),
    );
    const axis = {
      stroke: () => style("--muted"),
      grid: { stroke: () => style("--grid"), width: 1 },
      ticks: { show: false },
      font: "12px system-ui, sans-serif",
    };
    this.plot = new uPlot(
      {
        ...this.#size(),
        padding: [10, 28, 0, 0],
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { show: false } },
        scales: { x: { range: () => this.#now() }, y: { range: (_, __, max) => [0, this.#top(max)] } },
        axes: [
          { ...axis, size: 30, space: 70, values: (_, ticks) => ticks.map(clock) },
          { ...axis, ...(this.step ? { incrs: WHOLE } : {}), size: 56, space: 34, values: (_, ticks) => ticks.map((y) => this.format(y)) },
        ],
        series: [{}, ...series],
        hooks: { setCursor: [(plot) => this.#read(plot)] },
      },
      [[], ...series.map(() => [])],
      this.place,
    );
    this.plot.over.append(this.label);
  }

  #color(id, index) {
    const own = color(index, this.ids.length);
    if (this.chosen === null || this.chosen === id || !this.ids.includes(this.chosen)) return own;
    return style("--faded");
  }

  #top(max) {
    return Number.isFinite(max) ? Math.max(max * 1.08, this.least) : this.least;
  }

  #now() {
    const times = this.data?.[0] ?? [];
    const now = times.at(-1) ?? Date.now() / 1000;
    const seconds = Math.max(SECONDS_SHOWN.least, now - (times[0] ?? now));
    return [now - Math.min(SECONDS_SHOWN.most, seconds), now];
  }

  #size() {
    return { width: Math.max(200, this.place.clientWidth), height: HEIGHT };
  }

  #resize() {
    this.plot?.setSize(this.#size());
  }

  /** The largest values at the pointer, by name. */
  #read(plot) {
    const { idx, left } = plot.cursor;
    const rows = [];
    if (idx !== null && idx !== undefined && left >= 0) {
      plot.data.slice(1).forEach((values, line) => {
        const index = line % this.ids.length;
        const { word } = this.layers[Math.floor(line / this.ids.length)];
        const value = values[idx];
        if (value === null || value === undefined || (word && value === 0)) return;
        rows.push({ id: this.ids[index], index, value, word });
      });
    }
    this.label.hidden = rows.length === 0;
    if (rows.length === 0) return;
    rows.sort((one, other) => other.value - one.value);
    const shown = rows.slice(0, NAMED_MAX).map((row) => {
      const chip = el("i", { class: "chip" });
      chip.style.background = color(row.index, this.ids.length);
      return el("div", {}, chip, `${row.id} ${this.format(row.value)} ${row.word}`.trim());
    });
    const more = rows.length - shown.length;
    const rest = more > 0 ? [el("div", { class: "muted", text: `and ${more} more` })] : [];
    this.label.replaceChildren(el("b", { text: clock(plot.data[0][idx]) }), ...shown, ...rest);
    this.label.classList.toggle("left", left > plot.over.clientWidth / 2);
  }
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hour12: false,
  });
}
