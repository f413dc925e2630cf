async (load) => {
  const { Decisions } = await load("decisions");
  const { explanation } = new Decisions();
  document.body.append(explanation.dialog);
  await Promise.all([explanation.open("slow"), explanation.open("quick")]);
  const said = (one) => {
    if (one.tagName === "DL") return [...one.querySelectorAll("dd")].map((dd) => dd.textContent);
    if (one.tagName !== "DIV") return [one.textContent];
    const mark = (row) => (row.className === "chosen" ? "> " : "");
    const cells = (row) => [...row.children].map((cell) => cell.textContent).join(" | ");
    return [...one.querySelectorAll("tr")].map((row) => mark(row) + cells(row));
  };
  const parts = [...explanation.content.children];
  const flat = parts.flatMap((one) => (one.tagName === "SECTION" ? [...one.children] : [one]));
  const told = flat.flatMap(said);
  explanation.dialog.close();
  explanation.dialog.remove();
  return told;
}
