// The stream of events: kept up, watched, and begun again. Says at any time how it stands.
//
// It is read by `fetch` and not by an EventSource, which shows no API token and tells no reasons.

import { ask, wantsAnother } from "./access.js";

const SILENT_MS = 4000; // a service that lives says something every second
const RETRY_MS = 1000;
const HIDDEN_MS = 15_000; // a page that nobody looks at costs the service nothing
const BUSY_MS = 10_000;
const OK = 200;
const BUSY = 503;

const NOBODY = "Nobody answers there.";

export class Connection {
  /** `on.hello`, `on.update`: what was told; `on.denied`: an API token is wanted, and why;
   * `on.state`: {state, since, why}. */
  constructor(url, on) {
    this.url = url;
    this.on = on;
    this.since = new Date();
    this.asking = null;
    this.timers = {};
    document.addEventListener("visibilitychange", () => this.#seen());
    addEventListener("pagehide", () => this.#close());
    addEventListener("pageshow", (event) => event.persisted && this.open());
    this.open();
  }

  /** Begin, or begin again. */
  open() {
    this.#close();
    this.asking = new AbortController();
    this.#watch();
    this.#listen(this.asking);
  }

  async #listen(asking) {
    let why = NOBODY;
    let wait = RETRY_MS;
    try {
      const answer = await ask(this.url, { signal: asking.signal });
      if (answer.status !== OK) {
        const told = await answer.json().catch(() => ({}));
        if (asking !== this.asking) return;
        if (wantsAnother(answer)) {
          this.#denied(told.detail ?? answer.statusText);
          return;
        }
        why = `It answers ${answer.status}: ${told.detail ?? answer.statusText}.`;
        wait = answer.status === BUSY ? BUSY_MS : RETRY_MS;
      } else {
        for await (const [name, data] of eventsOf(answer.body)) {
          if (asking !== this.asking) return;
          this.#live();
          wait = 0; // it was there: perhaps it is at once again
          if (name === "hello") this.on.hello(JSON.parse(data));
          else if (name === "update") this.on.update(JSON.parse(data));
        }
      }
    } catch (error) {
      if (error instanceof SyntaxError) throw error; // a bug, which must be seen
      // else nobody answers, or not any more, or it was closed here
    }
    if (asking === this.asking) this.#lost(why, wait);
  }

  #close() {
    this.asking?.abort();
    this.asking = null;
    for (const timer of Object.values(this.timers)) clearTimeout(timer);
  }

  #live() {
    this.#watch();
    this.heard = new Date();
    if (this.state !== "live") this.#tell("live", this.heard, "");
  }

  #watch() {
    clearTimeout(this.timers.silent);
    this.timers.silent = setTimeout(
      () => this.#lost("It says nothing any more, though the connection stands."),
      SILENT_MS,
    );
  }

  #denied(why) {
    this.#close();
    this.#tell("denied", this.heard ?? this.since, why);
    this.on.denied(why);
  }

  #lost(why, wait = RETRY_MS) {
    this.#close();
    this.#tell("lost", this.heard ?? this.since, why);
    this.timers.retry = setTimeout(() => this.open(), wait);
  }

  #tell(state, since, why) {
    this.state = state;
    this.on.state({ state, since, why });
  }

  #seen() {
    clearTimeout(this.timers.hidden);
    if (!document.hidden) {
      if (this.state === "asleep") this.open();
      return;
    }
    if (this.state === "denied") return;
    this.timers.hidden = setTimeout(() => {
      this.#close();
      this.#tell("asleep", new Date(), "");
    }, HIDDEN_MS);
  }
}

/** [name, data] of each event of a stream (as HTML has it, as far as services use it). */
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const fields = new Map(event.split("\n").map((line) => line.split(/: (.*)/s, 2)));
      yield [fields.get("event"), fields.get("data")];
    }
  }
}
