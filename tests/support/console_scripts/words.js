async (load) => {
  const { color, duration, milliseconds, percent, webAddress } = await load("dom");
  return {
    duration: [3600, 7100, 7200, null].map((one) => duration(one ?? NaN)),
    milliseconds: [9.96, 9999, 10_000].map(milliseconds),
    percent: [0.0994, 0.0996, 0.5, NaN].map(percent),
    addresses: ["http://h:1/", "https://h", "ftp://h", "javascript:1//", null]
      .map((url) => webAddress(url, "/x")),
    colors: [5, 6, 20].map((count) => {
      return new Set(Array.from({ length: count }, (_, at) => color(at, count))).size;
    }),
  };
}
