// From counts of all time to what happens now: rates over the last second, and time lines. A count
// that fell belongs to a service that was started anew, and begins again.

const WINDOW_MS = 1000;
const SECONDS_KEPT = 120;
const KINDS = ["queue", "failed", "refused", "p50", "p99"];

export class Flows {
  constructor() {
    this.frames = [];
    this.now = new Map(); // what was reckoned of the newest frame
    this.times = []; // seconds since 1970, by this browser's clock
    this.lines = new Map(); // cluster -> its KINDS: [], each as long as `times`
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

  /** {arrived, done, failed, rejected, refused, pulled, system_ms, forwards: Map} of a cluster, per second;
   *  null where not known. What expired has failed its client. */
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
      failed: (now.failed + now.expired - old.failed - old.expired) / seconds,
      rejected: (now.rejected - old.rejected) / seconds,
      refused: (now.refused - old.refused) / seconds,
      system_ms: answered > 0 ? (now.system_time_sum_ms - old.system_time_sum_ms) / answered : null,
      forwards: new Map(forwards),
      pulled: (now.pulls - old.pulls) / seconds,
    };
  }

  #draw(byId) {
    const now = Date.now() / 1000;
    for (const id of byId.keys()) {
      if (this.lines.has(id)) continue;
      this.lines.set(id, Object.fromEntries(KINDS.map((kind) => [kind, this.times.map(() => null)])));
    }
    this.times.push(now);
    for (const [id, line] of this.lines) {
      const state = byId.get(id);
      const known = state !== undefined && !state.unreachable;
      const flow = this.of(id);
      line.queue.push(known ? state.queue_length : null);
      line.failed.push(flow?.failed ?? null);
      line.refused.push(flow?.refused ?? null);
      line.p50.push(known ? state.recent.p50_ms : null);
      line.p99.push(known ? state.recent.p99_ms : null);
    }
    let old = 0;
    while (this.times[old] < now - SECONDS_KEPT) old += 1;
    if (old < 50) return; // in pieces: it costs a copy
    this.times.splice(0, old);
    for (const line of this.lines.values()) {
      for (const kind of KINDS) line[kind].splice(0, old);
    }
  }
}
