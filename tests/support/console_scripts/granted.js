async (load, records) => {
  const { granted } = await load("pool");
  return records.map(granted);
}
