async (load) => {
  const { color, duration, milliseconds, percent, webAddress } = await load("dom");
  const hues = Array.from({ length: 20 }, (_, at) => Number(color(at, 20).match(/hsl\((\d+)/)[1]));
  const apart = hues.slice(1).map((hue, at) => {
    const turned = Math.abs(hue - hues[at]);
    return Math.min(turned, 360 - turned);
  });
  return {
    apart: Math.min(...apart),
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
