async (load, { frames, changed }) => {
  const { nodeView } = await load("node");
  const place = document.createElement("div");
  document.body.append(place);
  const view = nodeView(place);
  view.hello({ name: "a", actions: [], why_not: null });
  const tiles = () => [...view.tiles.list.children].map((one) => {
    const [value, name] = one.children;
    return `${name.textContent}: ${value.textContent}${value.className ? "!" : ""}`;
  });
  const told = [frames, changed].map((some) => {
    some.forEach((frame) => view.update(frame));
    return tiles();
  });
  const pressed = [0, 1, 0, 0].map((index) => {
    view.legend.children[index].click();
    const buttons = [...view.legend.children];
    return [buttons.map((one) => one.getAttribute("aria-pressed")), view.charts.p99.chosen];
  });
  const charts = Object.entries(view.charts);
  const drawn = charts.map(([name, chart]) => [name, chart.place.id, chart.data]);
  place.remove();
  return [told, pressed, drawn];
}
