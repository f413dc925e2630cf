async (load, { states, at_s }) => {
  const { leaseView } = await load("lease");
  const now = Date.now;
  const place = document.createElement("div");
  document.body.append(place);
  const view = leaseView(place);
  view.hello({ name: "m1", actions: ["drain"], why_not: null });
  const told = states.map((state, index) => {
    Date.now = () => 1000 * at_s[index];
    view.update(state);
    const tiles = [...view.tiles.list.querySelectorAll("b")];
    return {
      names: [...view.names],
      lines: Object.fromEntries([...view.lines].map(([id, line]) => [id, [...line]])),
      moves: [...view.list.children].map((row) => row.textContent.replace(/^.*:\d\d(?=\d)/, "")),
      note: view.note.textContent,
      alarming: tiles.filter((one) => one.className).map((one) => one.dataset.tile),
      redis: tiles[3].textContent, drain: !view.operate.buttons.get("drain").disabled,
    };
  });
  Date.now = now;
  place.remove();
  return told;
}
