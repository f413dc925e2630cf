async (load, clusters) => {
  const { Members, configuration, named, winner } = await load("members");
  const members = new Members();
  const shown = clusters.map((some) => {
    members.show({ clusters: some });
    return members.card.hidden ? null : [...members.body.children].map((row) => row.textContent);
  });
  return [shown, named(winner(clusters.at(-1)))];
}
