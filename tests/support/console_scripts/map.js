async (load, frames) => {
  const { FederationMap } = await load("map");
  const { Flows } = await load("flows");
  const place = document.createElement("div");
  place.style.width = "600px";
  document.body.append(place);
  const chosen = [];
  const map = new FederationMap(place, (id) => chosen.push(id));
  const flows = new Flows();
  frames.forEach((frame) => flows.add(frame));
  map.show(frames.at(-1), flows, "a");
  const told = {};
  for (const [id, node] of map.nodes) {
    const [on, turn] = node.busy.getAttribute("stroke-dasharray").split(" ").map(Number);
    const { state, load } = node.group.dataset;
    const [x, y] = node.group.getAttribute("transform").match(/-?[\d.]+/g).map(Number);
    told[id] = {
      name: node.group.querySelector(".name").textContent,
      words: node.words.textContent,
      says: node.title.textContent, busy: on / turn, state, load: load ?? null, x, y,
      waiting: node.waiting.textContent, pressed: node.group.getAttribute("aria-pressed"),
    };
  }
  const links = [...map.links.values()].map((link) => ({
    says: link.told.textContent, state: link.line.dataset.state,
    ways: link.ways.map((way) => [way.text.textContent, way.path.dataset.on ?? null]),
  }));
  for (const key of ["Enter", " ", "x"]) {
    map.nodes.get("b").group.dispatchEvent(new KeyboardEvent("keydown", { key }));
  }
  place.remove();
  return [told, links, chosen];
}
