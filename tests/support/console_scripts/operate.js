async (load) => {
  const { Operate } = await load("operate");
  const words = { drain: "Sure to drain?", resume: "Sure to resume?" };
  const operate = new Operate(words);
  document.body.append(operate.place);
  const told = [];
  const text = (one) => one.textContent;
  const look = () => told.push({
    can: [...operate.buttons.values()].filter((one) => !one.disabled).map(text),
    asks: operate.place.querySelector(".sure span")?.textContent ?? null,
    says: operate.told.textContent,
    hint: operate.place.querySelector("#why-not")?.textContent ?? null,
  });
  operate.hello({ actions: ["drain", "resume"], why_not: "not yours" }, "spillover drain x");
  operate.show(["drain"]);
  look();
  operate.hello({ actions: ["drain", "resume"], why_not: null }, "spillover drain x");
  operate.show(["drain"]);
  operate.buttons.get("drain").click();
  look();
  operate.show(["resume"]);
  look();
  operate.buttons.get("resume").click();
  operate.place.querySelector("[data-sure]").click();
  while (operate.told.textContent === "") await new Promise((next) => setTimeout(next, 5));
  look();
  operate.place.remove();
  return told;
}
