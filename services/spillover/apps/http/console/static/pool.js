// A pool of unlike servers at a closer look: its servers, its tokens by class, its types of requests.

import { el, milliseconds, set } from "./dom.js";

const TABLES = {
  servers: ["Servers", ["server", "jobs", "queued", "tokens", "rate", "state", "does not do"], (one) => [one.jobs, one.queued, one.tokens, one.rate, one.state, notDone(one)]],
  classes: ["Tokens by class", ["class", "available", "held", "out", "retiring", "limit"], (one) => [one.available, one.held, one.out, one.retiring, one.limit]],
  types: ["Types of requests", ["type", "blocked now", "in all", "work"], (one) => [one.blocked, one.blocked_total, milliseconds(one.work_ms)]],
};

export class Pool {
  constructor() {
    this.parts = Object.entries(TABLES).map(([kind, [title, titles, cells]]) => new Rows(kind, title, titles, cells));
    this.place = el("div", { class: "pool", hidden: true }, this.parts.map((one) => one.place));
  }

  /** `tokens` is what the cluster says of its pool, null where its servers are alike. */
  show(tokens) {
    this.place.hidden = !tokens;
    if (tokens) for (const part of this.parts) part.show(tokens[part.kind], tokens.counts[part.kind]);
  }
}

class Rows {
  constructor(kind, title, titles, cells) {
    this.kind = kind;
    this.cells = cells;
    this.body = el("tbody");
    this.more = el("p", { class: "muted small", hidden: true });
    const head = el("tr", {}, titles.map((text) => el("th", { scope: "col", text })));
    const table = el("table", { "data-pool": kind }, el("caption", { text: title }), el("thead", {}, head), this.body);
    this.place = el("div", { class: "scroll" }, table, this.more);
  }

  show(rows, count) {
    while (this.body.children.length > rows.length) this.body.lastChild.remove();
    while (this.body.children.length < rows.length) this.body.append(el("tr", {}, el("th", { scope: "row" })));
    rows.forEach((one, index) => {
      const row = this.body.children[index];
      const texts = [one.id, ...this.cells(one)];
      while (row.children.length < texts.length) row.append(el("td"));
      texts.forEach((text, cell) => set(row.children[cell], "text", text));
      set(row, "class", one.state === undefined || one.state === "up" ? null : "unknown");
    });
    this.more.hidden = count <= rows.length;
    set(this.more, "text", `and ${count - rows.length} more: see /state`);
  }
}

/** The types of which a server has done none of its last requests, though it is to serve them. */
function notDone(one) {
  return (one.not_done ?? []).map((run) => `${run.type}: ${run.in_a_row} ${run.how.replaceAll("_", " ")}`).join(", ");
}

/** Which token a request was given, why that one, and what else was there; null where servers are alike. */
export function granted(record) {
  const told = record.granted;
  if (!told) return null;
  const leftOut = told.left_out?.length > 0 ? `, not again on ${told.left_out.join(", ")}` : "";
  const given = `Token ${told.token} of class ${told.class}, on server ${told.server}${leftOut}`;
  const waited = `${milliseconds(told.available_ms)}, ${told.available_releases} releases`;
  if (!(told.others?.length > 0)) return `${given}: no other was there (available for ${waited}).`;
  const by = told.rank === undefined ? "available_releases" : "rank";
  const others = told.others.map((one) => `${one.class} ${one[by]}`).join(", ");
  const more = told.others_count > told.others.length ? ", …" : "";
  if (by === "rank") return `${given}: the least loaded (rank ${told.rank}). The others, by rank: ${others}${more}.`;
  return `${given}: the longest available (${waited}). The others, by releases: ${others}${more}.`;
}
