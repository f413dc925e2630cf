async (load) => {
  const { Connection } = await load("connection");
  const told = window.told = [];
  const pieces = window.pieces = [];
  window.asked = 0;
  window.fetch = async (url, { signal }) => {
    if (url !== "told") throw new TypeError("not this one"); // the page's own connection
    window.asked += 1;
    const left = pieces.shift();
    if (left === undefined) throw new TypeError("nobody");
    const body = new ReadableStream({
      start(to) {
        window.hang = () => { try { to.close(); } catch { /* it was closed */ } };
        signal.addEventListener("abort", window.hang);
        for (const piece of left) to.enqueue(new TextEncoder().encode(piece));
      },
    });
    return new Response(body, { status: 200 });
  };
  const shown = (value) => (value.state ? [value.state, value.why] : value);
  const say = (name) => (value) => told.push([name, shown(value)]);
  addEventListener("unhandledrejection", (event) => {
    event.preventDefault();
    told.push(["bug", event.reason.name]);
  });
  const hello = 'event: hello\ndata: {"n": 1}\n\n';
  const update = "event: update\ndata: 2\n\n";
  pieces.push([hello.slice(0, 20), hello.slice(20) + update.slice(0, 9), `${update.slice(9)}eve`]);
  const names = ["hello", "update", "state", "denied"];
  const on = Object.fromEntries(names.map((name) => [name, say(name)]));
  window.connection = new Connection("told", on);
}
