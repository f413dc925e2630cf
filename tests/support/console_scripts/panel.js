async (load, { frames, chosen }) => {
  const { ClusterPanel } = await load("cluster");
  const { Flows } = await load("flows");
  const panel = new ClusterPanel();
  panel.hello({ name: "a", actions: ["drain", "resume"], why_not: null });
  const flows = new Flows();
  frames.forEach((frame) => flows.add(frame));
  const all = (selector) => [...panel.card.querySelectorAll(selector)];
  const texts = (selector) => all(selector).map((one) => one.textContent);
  const show = (id, frame) => {
    panel.show(frame, flows, id);
    const enabled = all("button").filter((one) => !one.disabled);
    return {
      badge: `${panel.badge.textContent}, ${panel.badge.dataset.outcome}`,
      facts: texts("dt").map((name, at) => `${name}: ${texts("dd")[at]}`),
      neighbors: texts("table:not([data-pool]) tbody tr"),
      can: panel.operate.place.hidden ? null : enabled.map((one) => one.textContent),
      elsewhere: panel.elsewhere.textContent,
      pool: panel.pool.place.hidden ? null : texts("[data-pool] tbody tr"),
    };
  };
  return chosen.map(([id, frame]) => show(id, frame ?? frames.at(-1)));
}
