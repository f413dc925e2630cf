// The map: clusters on a ring, the links between them, and on each link what flows either way.
// Elements of the page rather than a picture: they can be pressed, focused and read aloud.

import { color, duration, health, percent, rate, set, share, svg } from "./dom.js";
import { configuration, isBehind, isNews, winner } from "./members.js";

const FLOWS_NAMED_MAX = 8; // clusters; beyond, only the chosen one's flows bear their rates
const WORDY_RADIUS = 24; // smaller discs have no room for words around them

const SIGNS = {
  degraded: ["M0 -9 L10 8.5 L-10 8.5 Z", "M0 -3.5 V3 M0 5.6 V6"], // a triangle with !
  recovering: ["M0 -9 A9 9 0 1 1 -0.01 -9 Z", "M0 5 V-4 M-3.7 -0.6 L0 -4.5 L3.7 -0.6"], // a disc with ↑
};

export class FederationMap {
  constructor(place, onChoose) {
    this.place = place;
    this.onChoose = onChoose;
    this.nodes = new Map();
    this.links = new Map();
    this.shape = "";
    this.svg = svg("svg", { class: "map", role: "group", "aria-label": "clusters and links" });
    place.append(this.svg);
    new ResizeObserver(() => this.#again()).observe(place);
  }

  show(frame, flows, chosen) {
    this.last = [frame, flows, chosen];
    const names = frame.clusters.map((one) => one.id);
    const width = Math.max(260, Math.round(this.place.clientWidth));
    const shape = JSON.stringify([names, frame.links, width]);
    if (shape !== this.shape) this.#build(names, frame.links, width);
    this.shape = shape;
    const states = new Map(frame.clusters.map((one) => [one.id, one]));
    const winning = winner(frame.clusters);
    for (const [id, node] of this.nodes) this.#drawNode(node, states.get(id), winning, chosen === id);
    // What flows moves on by a step each time: an animation would cost more than all the rest.
    this.step = ((this.step ?? 0) + 1) % 4;
    set(this.lines, "stroke-dashoffset", -this.step * 2.25);
    for (const link of this.links.values()) this.#drawLink(link, states, flows, chosen);
  }

  recolor() {
    this.shape = "";
    this.#again();
  }

  #again() {
    if (this.last !== undefined) this.show(...this.last);
  }

  // --- once ------------------------------------------------------------------------------------

  #build(names, links, width) {
    const sorted = [...names].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const height = Math.round(Math.min(Math.max(width * 0.72, Math.min(width, 340)), 500));
    let layout = ring(sorted, width, height, 62);
    this.wordy = layout.radius >= WORDY_RADIUS;
    if (!this.wordy) layout = ring(sorted, width, height, 40);
    this.many = names.length > FLOWS_NAMED_MAX;
    set(this.svg, "data-many", this.many);
    set(this.svg, "viewBox", `0 0 ${width} ${height}`);
    set(this.svg, "height", height);
    this.nodes.clear();
    this.links.clear();
    this.lines = svg("g");
    const tips = svg("g");
    const discs = svg("g");
    for (const [a, b, delay_ms] of links) {
      const link = this.#link(a, b, delay_ms, layout);
      this.links.set(`${a} ${b}`, link);
      this.lines.append(link.line, link.title, ...link.ways.flatMap((way) => [way.path]));
      tips.append(...link.ways.flatMap((way) => [way.head, way.text]));
    }
    sorted.forEach((id, index) => {
      const node = this.#node(id, color(names.indexOf(id), names.length), layout, index);
      this.nodes.set(id, node);
      discs.append(node.group);
    });
    this.svg.replaceChildren(stripes(), this.lines, tips, discs);
  }

  #node(id, own, { at, radius, center }, index) {
    const [x, y] = at.get(id);
    const turn = 2 * Math.PI * (radius - 3);
    const title = svg("title");
    const disc = svg("circle", { class: "disc", r: radius });
    const track = svg("circle", { class: "track", r: radius - 3 });
    const busy = svg("circle", { class: "busy", r: radius - 3, stroke: own });
    set(busy, "transform", "rotate(-90)");
    const [outX, outY] = outward([x, y], center, radius + 11);
    const inside = { x: 0, y: -radius * 0.32 };
    const name = svg("text", { class: "name", ...(this.wordy ? inside : { x: outX, y: outY + 4 }), text: id });
    if (id.length > 8) set(name, "text", `${id.slice(0, 7)}…`);
    const waiting = svg("text", { class: "waiting", y: this.wordy ? radius * 0.36 : 4.5 });
    set(waiting, "font-size", Math.max(11, Math.min(22, radius * 0.75)).toFixed(1));
    const side = x < center[0] - 1 ? -1 : 1; // outward too, but away from words and from small discs' names
    const where = this.wordy ? [side * radius * 0.98, -radius * 0.42] : [-outX * 0.55, -outY * 0.55];
    const signs = Object.entries(SIGNS).map(([of, paths]) => sign(of, paths, where, this.wordy ? 1 : 0.8));
    // Outward, where there are no links.
    const words = svg("text", { class: "words", y: y < center[1] ? -radius - 8 : radius + 16 });
    const group = svg(
      "g",
      {
        class: "cluster",
        transform: `translate(${x} ${y})`,
        role: "button",
        tabindex: 0,
        "data-cluster": id,
        "data-index": index,
        onclick: () => this.onChoose(id),
        onkeydown: (event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          this.onChoose(id);
        },
      },
      title,
      disc,
      track,
      busy,
      name,
      waiting,
      ...signs,
      words,
    );
    return { group, title, busy, waiting, words, turn };
  }

  #link(a, b, delay_ms, layout) {
    const { at, radius } = layout;
    const [from, to] = [at.get(a), at.get(b)];
    const around = clearing(a, b, layout);
    const title = svg("title");
    const line = svg("path", { class: "link", d: `M${from} Q${around} ${to}` }, title);
    const ways = [
      [a, b, from, to],
      [b, a, to, from],
    ].map(([one, other, start, end]) => {
      const arc = bent(start, end, around, radius);
      return {
        from: one,
        to: other,
        path: svg("path", { class: "flow", d: arc.d }),
        head: svg("path", { class: "head", d: "M0 0 L-9 4.5 L-9 -4.5 Z", transform: arc.end }),
        text: svg("text", { class: "rate", x: arc.middle[0], y: arc.middle[1] + 4 }),
      };
    });
    return { a, b, delay_ms, line, title: svg("g"), told: title, ways };
  }

  // --- every time ------------------------------------------------------------------------------

  #drawNode(node, state, winning, isChosen) {
    const gone = state.unreachable === true;
    const kind = gone ? "gone" : state.down ? "down" : state.draining ? "draining" : "up";
    const well = health(state);
    set(node.group, "data-state", kind);
    set(node.group, "data-health", well);
    set(node.group, "aria-pressed", isChosen ? "true" : "false");
    if (gone) {
      const seen = `last heard of ${duration(state.last_seen_s)}${state.last_seen_s === null ? "" : " ago"}`;
      set(node.title, "text", `${state.id} does not answer, ${seen}`);
      set(node.group, "aria-label", node.title.textContent);
      set(node.waiting, "text", "×");
      set(node.words, "text", this.wordy ? "unreachable" : "");
      set(node.busy, "stroke-dasharray", `0 ${node.turn}`);
      return;
    }
    const [p, r] = [state.accept_probability, state.neighborhood_accept_probability];
    const failing = well === "well" ? "" : `${well}, ${percent(state.failed_share)} of the work run here fails; `;
    const behind = isBehind(state, winning);
    const apart = isNews(state, winning) ? `, ${configuration(state, winning)}` : "";
    const told = `${state.id}: ${failing}${state.queue_length} waiting, ${state.busy} of ${state.servers} servers busy, P ${share(p)}, R ${share(r)}${apart}`;
    set(node.title, "text", told);
    set(node.group, "aria-label", told);
    set(node.waiting, "text", state.queue_length);
    set(node.group, "data-load", state.draining || p >= 0.7 ? "low" : p >= 0.3 ? "middle" : "high");
    const full = state.servers > 0 ? Math.min(1, state.busy / state.servers) : 0;
    set(node.busy, "stroke-dasharray", `${(full * node.turn).toFixed(1)} ${node.turn.toFixed(1)}`);
    const leaving = state.configuration.removed ? "removed" : state.drained ? "drained" : "draining";
    const word = kind === "draining" ? leaving : null;
    const figures = behind ? `version ${state.configuration.version}` : `P ${share(p)}  R ${share(r)}`;
    set(node.group, "data-behind", behind);
    const words = word ?? (kind === "down" ? "servers down" : well === "well" ? figures : well);
    set(node.words, "text", this.wordy ? words : "");
  }

  #drawLink(link, states, flows, chosen) {
    const touched = chosen === link.a || chosen === link.b;
    let spoiled = "";
    for (const way of link.ways) {
      const state = states.get(way.from);
      const known = state?.neighbors?.find((one) => one.id === way.to);
      if (known?.link?.cut) spoiled = "cut";
      else if (known?.link && spoiled === "") spoiled = "spoiled";
      const perSecond = flows.of(way.from)?.forwards.get(way.to) ?? 0;
      const flowing = perSecond > 0.05;
      set(way.path, "data-on", flowing);
      set(way.head, "data-on", flowing);
      const width = 1.2 + Math.min(5, Math.sqrt(perSecond) * 0.5);
      set(way.path, "stroke-width", width.toFixed(1));
      const named = flowing && (touched || !this.many);
      set(way.text, "text", named ? `${rate(perSecond)}/s` : "");
      way.rate = perSecond;
    }
    const dead = [link.a, link.b].some((id) => states.get(id)?.unreachable);
    set(link.line, "data-state", dead ? "dead" : spoiled || "up");
    set(link.line, "data-touched", touched);
    const [there, back] = link.ways;
    const words = `${link.a} → ${link.b} ${rate(there.rate)}/s, ${link.b} → ${link.a} ${rate(back.rate)}/s, ${link.delay_ms} ms one way`;
    set(link.told, "text", spoiled ? `${words}, ${spoiled} by an operator` : words);
  }
}

/** What discs of degraded clusters are filled with. */
function stripes() {
  const pattern = svg(
    "pattern",
    { id: "stripes", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { class: "ground", width: 7, height: 7 }),
    svg("rect", { class: "stripe", width: 2.5, height: 7 }),
  );
  return svg("defs", {}, pattern);
}

/** At a disc's rim: seen only while the cluster's health is that. */
function sign(of, paths, [x, y], scale) {
  const place = `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${scale})`;
  const drawn = paths.map((d, index) => svg("path", { d, class: index === 0 ? "shape" : "mark" }));
  return svg("g", { class: "sign", "data-of": of, transform: place }, drawn);
}

/** Where clusters are, and how large they may be. */
function ring(ids, width, height, edge) {
  const [cx, cy] = [width / 2, height / 2];
  const few = ids.length === 1;
  const [rx, ry] = few ? [0, 0] : [width / 2 - edge, height / 2 - edge + 6];
  const at = new Map();
  evenly(ids.length, rx, ry).forEach((angle, index) => {
    const [x, y] = [cx + rx * Math.cos(angle), cy + ry * Math.sin(angle)];
    at.set(ids[index], [Math.round(x * 10) / 10, Math.round(y * 10) / 10]);
  });
  let apart = Infinity;
  const places = [...at.values()];
  places.forEach(([x, y], index) => {
    const [u, v] = places[(index + 1) % places.length];
    if (places.length > 1) apart = Math.min(apart, Math.hypot(x - u, y - v));
  });
  return { at, center: [cx, cy], radius: Math.max(11, Math.min(34, apart * 0.32)) };
}

/** Angles at equal distances along an ellipse, from its top on. */
function evenly(count, rx, ry) {
  const STEPS = 720;
  const lengths = [0];
  const angle = (step) => -Math.PI / 2 + (2 * Math.PI * step) / STEPS;
  for (let step = 0; step < STEPS; step += 1) {
    const [a, b] = [angle(step), angle(step + 1)];
    const x = rx * (Math.cos(b) - Math.cos(a));
    const y = ry * (Math.sin(b) - Math.sin(a));
    lengths.push(lengths[step] + Math.hypot(x, y));
  }
  let step = 0;
  return Array.from({ length: count }, (_, index) => {
    const wanted = (lengths[STEPS] * index) / count;
    while (step < STEPS && lengths[step + 1] <= wanted) step += 1;
    return angle(step);
  });
}

/** From the center away, `distance` from a place. */
function outward([x, y], [cx, cy], distance) {
  const away = Math.hypot(x - cx, y - cy) || 1;
  return [((x - cx) / away) * distance, ((y - cy) / away) * distance];
}

/** Where a link is drawn to so that it keeps clear of other clusters: the control point of a curve,
 *  pulled towards the center if need be. */
function clearing(a, b, { at, radius, center }) {
  const [[x1, y1], [x2, y2]] = [at.get(a), at.get(b)];
  const middle = [(x1 + x2) / 2, (y1 + y2) / 2];
  const apart = Math.hypot(x2 - x1, y2 - y1) || 1;
  let deepest = 0;
  for (const [id, [x, y]] of at) {
    if (id === a || id === b) continue;
    const along = ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / apart ** 2;
    if (along <= 0 || along >= 1) continue;
    const off = Math.abs((x - x1) * (y2 - y1) - (y - y1) * (x2 - x1)) / apart;
    deepest = Math.max(deepest, 1.9 * radius + 12 - off);
  }
  const [dx, dy] = outward(middle, center, Math.min(2 * deepest, apart));
  return [middle[0] - dx, middle[1] - dy];
}

/** A curve from rim to rim, bent to the left of its way, so that both ways can be seen. */
function bent([x1, y1], [x2, y2], around, radius) {
  const apart = Math.hypot(x2 - x1, y2 - y1) || 1;
  const [ux, uy] = [(x2 - x1) / apart, (y2 - y1) / apart];
  const [nx, ny] = [uy, -ux];
  const bow = Math.min(16, apart * 0.12);
  const side = Math.min(7, radius * 0.3);
  const control = [around[0] + nx * (bow + side), around[1] + ny * (bow + side)];
  const rim = ([x, y], by) => {
    const far = Math.hypot(control[0] - x, control[1] - y) || 1;
    const [vx, vy] = [(control[0] - x) / far, (control[1] - y) / far];
    return [x + vx * by + nx * side, y + vy * by + ny * side];
  };
  const start = rim([x1, y1], radius + 2);
  const end = rim([x2, y2], radius + 4);
  const turned = (Math.atan2(end[1] - control[1], end[0] - control[0]) * 180) / Math.PI;
  const round = (pair) => pair.map((value) => value.toFixed(1)).join(" ");
  return {
    d: `M${round(start)} Q${round(control)} ${round(end)}`,
    end: `translate(${round(end)}) rotate(${turned.toFixed(1)})`,
    middle: [
      ((start[0] + 2 * control[0] + end[0]) / 4 + nx * 13).toFixed(1),
      (start[1] + 2 * control[1] + end[1]) / 4 + ny * 13,
    ],
  };
}
