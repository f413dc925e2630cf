// Joins the parts: the connection, the bar at the top, and the view of what this service is.

import { TokenForm } from "./access.js";
import { Connection } from "./connection.js";
import { duration, set } from "./dom.js";
import { leaseView } from "./lease.js";
import { nodeView } from "./node.js";
import { queueView } from "./queue.js";

const VIEWS = { node: nodeView, lease: leaseView, queue: queueView };
const STATES = { connecting: "connecting", live: "live", lost: "lost", asleep: "asleep", denied: "closed" };

const byId = (id) => document.getElementById(id);
const assets = new URL(import.meta.url).pathname.split("/").at(-2);

let view = null;
let standing = { state: "connecting", since: new Date(), why: "" };

function hello(told) {
  tokenForm.hide();
  if (told.assets !== assets) {
    location.reload(); // another version is there now
    return;
  }
  set(byId("title"), "text", `Spillover ${told.name}`);
  document.title = `${told.name} · Spillover`;
  const more = {
    node: `cluster of ${told.topology}`,
    lease: `member of group ${told.group}`,
    queue: "producer of a distributed queue",
  }[told.kind];
  set(byId("subtitle"), "text", `${more} · ${told.version}`);
  if (view === null) view = VIEWS[told.kind](byId("view"));
  view.hello(told);
}

function update(told) {
  if (view === null) return;
  view.update(told);
  byId("view").hidden = false;
}

function tellState(state) {
  standing = state;
  const pill = byId("connection");
  set(pill, "text", STATES[state.state]);
  set(pill, "data-state", state.state);
  document.body.classList.toggle("stale", state.state === "lost");
  view?.stale?.(state.state !== "live");
  tellLost();
}

/** Also every second, since it says how long ago. */
function tellLost() {
  const banner = byId("lost");
  const lost = standing.state === "lost";
  if (banner.hidden === lost) banner.hidden = !lost;
  if (!lost) return;
  const at = standing.since.toLocaleTimeString([], { hour12: false });
  const ago = duration((Date.now() - standing.since.getTime()) / 1000);
  const shown = view === null ? "" : " What is shown is from then.";
  set(banner, "text", `Connection lost since ${at} (${ago}). ${standing.why}${shown} Trying again.`);
}

function tellTheme() {
  const dark = document.documentElement.dataset.theme === "dark";
  set(byId("theme"), "text", dark ? "☀ light" : "☾ dark");
  view?.recolor?.();
}

byId("theme").addEventListener("click", () => globalThis.switchTheme());
document.addEventListener("theme", tellTheme);
tellTheme();
setInterval(tellLost, 1000);
const denied = (why) => tokenForm.show(why);
const tokenForm = new TokenForm(byId("access"), byId("forget"), () => connection.open());
const connection = new Connection("console/events", { hello, update, denied, state: tellState });
