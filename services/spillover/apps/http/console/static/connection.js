// The stream of events: kept up, watched, and begun again. Says at any time how it stands.

const SILENT_MS = 4000; // a service that lives says something every second
const RETRY_MS = 1000;
const HIDDEN_MS = 15_000; // a page that nobody looks at costs the service nothing
const BUSY_MS = 10_000;

export class Connection {
  /** `on.hello`, `on.update`: what was told; `on.state`: {state, since, why}. */
  constructor(url, on) {
    this.url = url;
    this.on = on;
    this.since = new Date();
    this.source = null;
    this.timers = {};
    document.addEventListener("visibilitychange", () => this.#seen());
    addEventListener("pagehide", () => this.#close());
    addEventListener("pageshow", (event) => event.persisted && this.#open());
    this.#open();
  }

  #open() {
    this.#close();
    const source = new EventSource(this.url);
    this.source = source;
    this.#watch();
    source.addEventListener("hello", (event) => {
      this.#live();
      this.on.hello(JSON.parse(event.data));
    });
    source.addEventListener("update", (event) => {
      this.#live();
      this.on.update(JSON.parse(event.data));
    });
    source.addEventListener("beat", () => this.#live());
    source.onerror = () => this.#failed(source);
  }

  #close() {
    this.source?.close();
    this.source = null;
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

  /** A stream tells no reason, so a plain request asks for it: there may be too many listeners. */
  async #failed(source) {
    if (source !== this.source) return;
    this.#close();
    let why = "Nobody answers there.";
    let wait = RETRY_MS;
    const asking = new AbortController();
    const limit = setTimeout(() => asking.abort(), 2000);
    try {
      const answer = await fetch(this.url, { signal: asking.signal, cache: "no-store" });
      if (answer.status !== 200) {
        const told = await answer.json().catch(() => ({}));
        why = `It answers ${answer.status}: ${told.detail ?? answer.statusText}.`;
        wait = answer.status === 503 ? BUSY_MS : RETRY_MS;
      } else {
        wait = 0;
      }
    } catch {
      // nobody answers
    } finally {
      clearTimeout(limit);
      asking.abort();
    }
    if (this.source === null) this.#lost(why, wait);
  }

  #lost(why, wait = RETRY_MS) {
    this.#close();
    this.#tell("lost", this.heard ?? this.since, why);
    this.timers.retry = setTimeout(() => this.#open(), wait);
  }

  #tell(state, since, why) {
    this.state = state;
    this.on.state({ state, since, why });
  }

  #seen() {
    clearTimeout(this.timers.hidden);
    if (!document.hidden) {
      if (this.state === "asleep") this.#open();
      return;
    }
    this.timers.hidden = setTimeout(() => {
      this.#close();
      this.#tell("asleep", new Date(), "");
    }, HIDDEN_MS);
  }
}
