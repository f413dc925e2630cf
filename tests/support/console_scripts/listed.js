async (load) => {
  const { Decisions } = await load("decisions");
  const all = new Decisions();
  document.body.append(all.card, all.explanation.dialog);
  const one = (number, id) => ({
    id: id ?? `r${number}`, at_ms: number, outcome: "kept", neighbor: null, queue_length: 1,
    busy: 1, servers: 2, accept_probability: 1, hops: 0,
  });
  const told = [];
  const show = (at_ms, ...decisions) => {
    all.show({ at_ms, decisions });
    const rows = [...all.body.children];
    told.push([all.rows.size, rows.length, rows[0]?.children[1].textContent ?? null]);
  };
  const scroll = all.card.querySelector(".scroll");
  const point = (kind, pointerType) => {
    scroll.dispatchEvent(new PointerEvent(kind, { pointerType }));
  };
  show(400, ...Array.from({ length: 400 }, (_, at) => one(400 - at)));
  point("pointerenter", "mouse");
  show(401, one(401));
  point("pointerleave", "mouse");
  show(402, one(402));
  point("pointerenter", "touch");
  show(403, one(403, ""));
  all.body.firstChild.click();
  const opened = all.explanation.dialog.open;
  show(5, one(5));
  show(6, one(5));
  all.card.remove();
  return [told, opened];
}
