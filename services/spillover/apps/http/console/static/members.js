// Which configuration of the federation each cluster goes by, and where its clients are. Both are
// shown only where there is anything to say: versions that differ, clients that have a session.

import { el, set } from "./dom.js";

const TITLES = ["cluster", "clients", "moved away", "put off", "configuration"];
const NOTE = "Clients that have a session; and since each node began, those that left for another and those not let in";

/** Of clusters' configurations the one that wins: the highest version, then the highest cluster. */
export function winner(clusters) {
  const up = clusters.filter((one) => !one.unreachable).map((one) => one.configuration);
  return up.reduce((best, one) => (isOlder(best, one) ? one : best), { version: 0, by: null });
}

/** Whether a cluster has yet to follow, as each has for a second or two after a change. */
export function isBehind(state, winning) {
  return !state.unreachable && isOlder(state.configuration, winning);
}

/** Whether an operator is to hear of it. */
export function isNews(state, winning) {
  if (state.unreachable) return false;
  return isBehind(state, winning) || state.configuration.superseded !== null || state.configuration.removed;
}

/** How a configuration is called. */
export function named({ version, by }) {
  return by === null ? `version ${version}` : `version ${version} of ${by}`;
}

/** The same of a cluster's, with all that is wrong with it. */
export function configuration(state, winning) {
  const { superseded, removed } = state.configuration;
  const parts = [named(state.configuration)];
  if (isBehind(state, winning)) parts.push(`behind ${named(winning)}`);
  if (superseded !== null) parts.push(`its version ${superseded} was superseded`);
  if (removed) parts.push(state.drained ? "removed: it can be ended" : "removed: it drains");
  return parts.join(", ");
}

function isOlder(one, other) {
  return one.version < other.version || (one.version === other.version && (one.by ?? "") < (other.by ?? ""));
}

/** A table of all clusters. */
export class Members {
  constructor() {
    this.body = el("tbody");
    const head = el("thead", {}, el("tr", {}, TITLES.map((text) => el("th", { scope: "col", text }))));
    const table = el("div", { class: "scroll" }, el("table", {}, el("caption", { text: NOTE }), head, this.body));
    this.card = el("section", { class: "card", id: "members", hidden: true }, el("h2", { text: "Clients and configuration" }), table);
  }

  show({ clusters }) {
    const winning = winner(clusters);
    const up = clusters.filter((one) => !one.unreachable);
    this.card.hidden = !up.some((one) => isNews(one, winning) || Object.values(one.clients).some((count) => count > 0));
    if (this.card.hidden) return;
    while (this.body.children.length > up.length) this.body.lastChild.remove();
    while (this.body.children.length < up.length) {
      this.body.append(el("tr", {}, el("th", { scope: "row" }), TITLES.slice(1).map(() => el("td"))));
    }
    up.forEach((one, index) => {
      const { connected, moved_away, put_off } = one.clients;
      const row = this.body.children[index];
      [one.id, connected, moved_away, put_off, configuration(one, winning)].forEach((text, cell) => set(row.children[cell], "text", text));
      set(row, "class", isBehind(one, winning) ? "unknown" : null);
    });
  }
}
