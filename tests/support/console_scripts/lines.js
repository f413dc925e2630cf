async (load, { shown, at }) => {
  const { Chart } = await load("charts");
  const place = document.createElement("div");
  place.style.width = "800px";
  document.body.append(place);
  const layers = [{ word: "failed" }, { word: "refused" }];
  const format = (value) => `${value}/s`;
  const chart = new Chart(place, { format, least: 5, layers, calm: "calm" });
  const told = [];
  for (const { times, failed, refused } of shown) {
    chart.show(times, ...[failed, refused].map((lines) => new Map(Object.entries(lines))));
    await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
    const { x, y } = chart.plot.scales;
    chart.plot.setCursor({ left: at * chart.plot.over.clientWidth, top: 5 });
    await new Promise((drawn) => requestAnimationFrame(drawn));
    const named = [...chart.label.children].slice(1).map((one) => one.textContent);
    const read = chart.label.hidden ? null : named;
    told.push({ x: x.max - x.min, y: y.max, calm: !chart.calm.hidden, read });
  }
  const colors = (chosen) => {
    chart.choose(chosen);
    return chart.plot.series.slice(1, 3).map((line) => line.stroke());
  };
  const plain = colors(null);
  const chosen = [colors("a"), colors("nobody")];
  const faded = chosen.map((some) => some.map((one, at) => one === plain[at]));
  place.remove();
  return [told, faded];
}
