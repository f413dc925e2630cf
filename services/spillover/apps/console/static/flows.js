// From counts of all time to what happens now: rates over the last second, and time lines. A count
// that fell belongs to a service that was started anew, and begins again.

const WINDOW_MS = 1000;
const SECONDS_KEPT = 120;

export class Flows {
  constructor() {
    this.frames = [];
    this.now = new Map(); // what was reckoned of the newest frame
    this.times = []; // seconds since 1970, by this browser's clock
    this.lines = new Map(); // cluster -> {queue: [], system: []}, as long as `times`
  }

  add(frame) {
    const before = this.frames.at(-1);
    if (before !== undefined && frame.at_ms < before.at_ms) this.frames = []; // another service
    const byId = new Map(frame.clusters.map((one) => [one.id, one]));
    this.now.clear();
    this.frames.push({ at_ms: frame.at_ms, byId });
    // One stays that is as old as the window or older.
    while (this.frames.length > 2 && frame.at_ms - this.frames[1].at_ms >= WINDOW_MS) {
      this.frames.shift();
    }
    this.#draw(byId);
  }

  /** {arrived, done, system_ms, forwards: Map} per second of a cluster; null where not known. */
  of(id) {
    if (!this.now.has(id)) this.now.set(id, this.#reckon(id));
    return this.now.get(id);
  }

  #reckon(id) {
    const last = this.frames.at(-1);
    const now = last?.byId.get(id);
    if (!now || now.unreachable) return null;
    // It may not have answered in time for a while.
    const first = this.frames.find((frame) => frame.byId.get(id)?.epoch === now.epoch);
    const old = first.byId.get(id);
    const seconds = (last.at_ms - first.at_ms) / 1000;
    if (seconds <= 0) return null;
    const answered = now.answered - old.answered;
    const before = new Map(old.neighbors.map((one) => [one.id, one.forwards]));
    const forwards = now.neighbors.map((one) => {
      return [one.id, (one.forwards - (before.get(one.id) ?? one.forwards)) / seconds];
    });
    return {
      arrived: (now.home.accepted - old.home.accepted) / seconds,
      done: answered / seconds,
      system_ms: answered > 0 ? (now.system_time_sum_ms - old.system_time_sum_ms) / answered : null,
      forwards: new Map(forwards),
    };
  }

  #draw(byId) {
    const now = Date.now() / 1000;
    for (const id of byId.keys()) {
      if (this.lines.has(id)) continue;
      const empty = () => this.times.map(() => null);
      this.lines.set(id, { queue: empty(), system: empty() });
    }
    this.times.push(now);
    for (const [id, line] of this.lines) {
      const state = byId.get(id);
      line.queue.push(!state || state.unreachable ? null : state.queue_length);
      line.system.push(this.of(id)?.system_ms ?? null);
    }
    let old = 0;
    while (this.times[old] < now - SECONDS_KEPT) old += 1;
    if (old < 50) return; // in pieces: it costs a copy
    this.times.splice(0, old);
    for (const line of this.lines.values()) {
      line.queue.splice(0, old);
      line.system.splice(0, old);
    }
  }
}
