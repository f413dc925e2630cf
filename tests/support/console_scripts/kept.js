async (load) => {
  const { wantsAnother } = await load("access");
  const { Flows } = await load("flows");
  const flows = new Flows();
  const frame = (at_ms, n) => ({ at_ms, clusters: [{
    id: "a", epoch: 1, queue_length: n, recent: { p50_ms: 1, p99_ms: 2 }, home: { accepted: 0 },
    answered: 0, failed: 4 * n, expired: 0, rejected: 0, refused: n, pulls: 0,
    system_time_sum_ms: 0, neighbors: [],
  }] });
  [frame(0, 0), frame(1000, 3), frame(1500, 9)].forEach((one) => flows.add(one));
  const themes = [0, 1].map(() => {
    switchTheme();
    return [document.documentElement.dataset.theme, localStorage.getItem("spillover-theme")];
  });
  return [flows.lines.get("a"), [401, 403, 404].map((status) => wantsAnother({ status })), themes];
}
