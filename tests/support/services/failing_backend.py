"""A backend in a process of its own: each of its paths works or fails as it is told.

`POST /told/NAME {"status": 503, "retry_after_s": 2}` makes /NAME answer so, at once; `{}` heals it.
`POST /NAME` takes SERVICE_S where it works. It says its port on stdout, and needs the standard
library only.
"""

from __future__ import annotations

import asyncio
import json

SERVICE_S = 0.1

told: dict[str, dict] = {}


async def answer(path: str, body: bytes) -> tuple[int, str, object]:
    if path.startswith("/told/"):
        told[path.removeprefix("/told")] = json.loads(body)
        return 200, "", None
    if how := told.get(path):
        pause_s = how.get("retry_after_s")
        more = "" if pause_s is None else f"Retry-After: {pause_s}\r\n"
        return how["status"], more, {"says": path}
    await asyncio.sleep(SERVICE_S)
    return 200, "", {"from": path}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int((head.partition("content-length: ")[2].split() or ["0"])[0])
            body = await reader.readexactly(length)
            status, more, said = await answer(head.split()[1], body)
            text = json.dumps(said).encode()
            first = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{more}"
            writer.write(f"{first}Content-Length: {len(text)}\r\n\r\n".encode() + text)
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - whoever starts it reads it
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
