// What a service of the tests says, on Node's own server: as answers.py says it. The port, and for how long a kept
// connection may be idle.
const { createHash } = require("node:crypto");
const http = require("node:http");
const zlib = require("node:zlib");

const TEXT = { "Content-Type": "text/plain" };
const STREAM = { "Content-Type": "text/event-stream" };
const BIG = Buffer.from("0123456789abcdef".repeat(4096));
const BIG_PIECES = 64;
const FILE = Buffer.alloc(64 * 256, Buffer.from([...Array(256).keys()]));
const GZIPPED = zlib.gzipSync("hello gzip ".repeat(500));
const PIECES = [0, 1, 2, 3].map((number) => `data: ${number}\n\n`);
let left = 0;

function answer(method, path, query, fields, body) {
  if (path.startsWith("/p/")) return [200, TEXT, `${path} ${query}`];
  switch (path) {
    case "/small":
      return [200, TEXT, "hello"];
    case "/echo": {
      const sha256 = createHash("sha256").update(body).digest("hex");
      const told = { method, query, type: fields["content-type"] ?? null, sha256 };
      return [200, { "Content-Type": "application/json" }, JSON.stringify(told)];
    }
    case "/etag":
      if (fields["if-none-match"] === '"abc"') return [304, { ETag: '"abc"' }, ""];
      return [200, { ...TEXT, ETag: '"abc"' }, "tagged"];
    case "/range": {
      if (!fields.range) return [200, { ...TEXT, "Accept-Ranges": "bytes" }, FILE];
      const [first, last] = fields.range.split("=")[1].split("-").map(Number);
      const told = `bytes ${first}-${last}/${FILE.length}`;
      return [206, { ...TEXT, "Content-Range": told }, FILE.subarray(first, last + 1)];
    }
    case "/gzip":
      return [200, { ...TEXT, "Content-Encoding": "gzip" }, GZIPPED];
    case "/cookie":
      return [200, { ...TEXT, "Set-Cookie": ["a=1; Path=/", "b=2; HttpOnly"] }, fields.cookie ?? ""];
    case "/headers": {
      const seen = Object.keys(fields).filter((name) => name.startsWith("x-h")).sort();
      return [200, TEXT, `${fields.host} ${seen}`];
    }
    case "/many": {
      const many = [...Array(90).keys()].map((number) => [`X-O${number}`, "v".repeat(20)]);
      return [200, { ...TEXT, ...Object.fromEntries(many) }, "m"];
    }
    case "/moved":
      return [301, { ...TEXT, Location: "/small?x=1" }, "moved"];
    case "/left":
      return [200, TEXT, String(left)];
    case "/none":
      return [204, {}, ""];
    case "/empty":
      return [200, TEXT, ""];
    case "/broken":
      return [500, TEXT, "broken"];
  }
  return [404, TEXT, "nothing here"];
}

function pieces(path) {
  if (path === "/stream") return [STREAM, PIECES, 0];
  if (path === "/long") return [STREAM, Array(1000).fill(PIECES[0]), 10];
  const length = { ...TEXT, "Content-Length": BIG.length * BIG_PIECES };
  return path === "/big" ? [length, Array(BIG_PIECES).fill(BIG), 0] : null;
}

async function say(response, parts, pauseMs) {
  response.on("close", () => {
    if (!response.writableFinished) left += 1;
  });
  for (const part of parts) {
    if (response.destroyed) return;
    if (!response.write(part)) await new Promise((go) => response.once("drain", go).once("close", go));
    if (pauseMs) await new Promise((go) => setTimeout(go, pauseMs));
  }
  response.end();
}

const server = http.createServer(async (request, response) => {
  const { method, headers } = request;
  const [, path, query] = request.url.match(/^([^?]*)\??(.*)$/s);
  if (path === "/unread") return response.writeHead(401, { "Content-Length": 2 }).end("no");
  const told = pieces(path);
  if (told) {
    response.writeHead(200, told[0]);
    return method === "HEAD" ? response.end() : say(response, told[1], told[2]);
  }
  const parts = [];
  try {
    for await (const part of request) parts.push(part);
  } catch {
    return; // the client has left
  }
  const [status, fields, body] = answer(method, path, query, headers, Buffer.concat(parts));
  const counted = [204, 304].includes(status) ? {} : { "Content-Length": Buffer.byteLength(body) };
  response.writeHead(status, { ...fields, ...counted }).end(method === "HEAD" ? undefined : body);
});
server.keepAliveTimeout = Number(process.argv[3]);
server.listen(Number(process.argv[2]), "127.0.0.1");
process.on("SIGTERM", () => {
  server.close(() => process.exit(0));
  server.closeIdleConnections();
});
