// Elements made from what is told. Whatever comes from outside becomes text or an attribute that
// cannot run, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. `props`: attributes, `class`, `text`, or `on...` with a function. */
export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same of an SVG. */
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) set(node, name, value);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** One property, if it differs: the page is drawn several times a second. */
export function set(node, name, value) {
  if (name.startsWith("on")) {
    node.addEventListener(name.slice(2), value);
  } else if (name === "text") {
    const text = String(value);
    if (node.textContent !== text) node.textContent = text;
  } else if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else {
    const text = value === true ? "" : String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

/** A link to another service's page, or null if that is no address of the web. */
export function webAddress(url, path) {
  try {
    const found = new URL(`${String(url).replace(/\/+$/, "")}${path}`);
    return found.protocol === "http:" || found.protocol === "https:" ? found.href : null;
  } catch {
    return null;
  }
}

// Chosen by eye where they suffice; else hues that differ most from one to the next.
const LIGHT = ["#0068b3", "#d1490c", "#0a8a63", "#b0439b", "#937000"];
const DARK = ["#5cb6f5", "#ff9155", "#3fd1a1", "#ee93d8", "#e5c04a"];

/** The color of the `index`th of `count` things, in this theme. */
export function color(index, count) {
  const dark = document.documentElement.dataset.theme === "dark";
  const chosen = dark ? DARK : LIGHT;
  if (count <= chosen.length) return chosen[index];
  const hue = (210 + index * 137.508) % 360;
  return dark ? `hsl(${hue.toFixed(0)} 70% 66%)` : `hsl(${hue.toFixed(0)} 70% 38%)`;
}

/** A custom property of the style sheet, as it is now. */
export function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function share(value) {
  return Number.isFinite(value) ? value.toFixed(2) : "–";
}

export function percent(value) {
  if (!Number.isFinite(value)) return "–";
  const hundredths = 100 * value;
  return `${hundredths > 0 && hundredths < 9.95 ? hundredths.toFixed(1) : Math.round(hundredths)} %`;
}

/** What a cluster says of its own work: "well", "degraded" or "recovering". */
export function health(state) {
  if (state.unreachable) return "well"; // nobody knows
  if (state.degraded) return "degraded";
  return state.health === "recovering" ? "recovering" : "well";
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "never";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

export function milliseconds(value) {
  if (!Number.isFinite(value)) return "–";
  if (value >= 10_000) return `${(value / 1000).toFixed(1)} s`;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

export function rate(value) {
  if (!Number.isFinite(value)) return "–";
  return value > 0 && value < 9.95 ? value.toFixed(1) : String(Math.round(value));
}
