async (load, { states, at_s }) => {
  const { queueView } = await load("queue");
  const now = Date.now;
  const place = document.createElement("div");
  document.body.append(place);
  const view = queueView(place);
  view.hello({ name: "p1", actions: ["drain", "resume"], why_not: null });
  const told = states.map((state, index) => {
    Date.now = () => 1000 * at_s[index];
    view.update({ ...state, others: [] });
    const tiles = [...view.tiles.list.querySelectorAll("b")];
    return {
      times: [...view.times],
      lines: Object.fromEntries([...view.lines].map(([flow, line]) => [flow, [...line]])),
      alarming: tiles.filter((one) => one.className).map((one) => one.dataset.tile),
      oldest: tiles[5].textContent, note: view.note.textContent,
      cells: [...view.buffer.children].map((one) => one.textContent),
      rows: ["parked", "takes", "grants"].map((name) => view.rows[name].textContent),
      can: [...view.operate.buttons].filter(([, one]) => !one.disabled).map(([action]) => action),
    };
  });
  Date.now = now;
  place.remove();
  return told;
}
