"""What a loop comes to late: an answer that was there before a deadline is read after it."""

import asyncio
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from spillover.live.overflow.shell import NodeShell
from spillover.model.passed import PassedRequest
from spillover.model.request import Outcome, Request
from spillover.model.topology import Cluster, Topology
from support.loop import until
from support.scripted_answers import Told

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextmanager
def service():
    """Says which paths it is asked for, and answers each when it is told to."""
    asked, go_on = [], threading.Semaphore(0)

    def serve(listening):
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection):
        with connection, suppress(OSError):  # whoever asked may have gone
            while head := connection.recv(65536):
                asked.append(head.split()[1].decode())
                go_on.acquire()
                connection.sendall(ANSWER)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        yield listening.getsockname()[1], asked, go_on
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_an_answer_that_is_read_after_the_deadline_harms_nobody_else():
    """Its request has expired then, and the one that waited gets the server, and its own answer."""

    async def main(port, asked, go_on):
        cluster = Cluster(
            id="a", servers=1, handler=f"proxy:http://127.0.0.1:{port}", url="http://127.0.0.1:1"
        )
        shell = NodeShell(Topology(name="one", clusters=(cluster,)), "a")
        serving = asyncio.create_task(shell.run())
        wrongs = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: wrongs.append(told))

        def take(path, deadline_s):
            sink = Told()
            wanted = PassedRequest("GET", path.encode(), ((b"Host", b"x"),), b"").encode()
            request = Request("", False, wanted, (), "default", 5, None, len(wanted))
            shell.requests.home.take_passed(request, deadline_s, sink)
            return sink

        try:
            deadline_s = time.monotonic() + 0.3
            first = take("/first", deadline_s)
            second = take("/second", time.monotonic() + 60.0)
            await until(lambda: asked == ["/first"])
            go_on.release()
            while time.monotonic() < deadline_s + 0.02:
                """The loop is late."""
            await until(lambda: first.how)
            go_on.release(4)
            await until(lambda: second.how)
            assert asked[-1] == "/second"
            assert second.how == "end", second.told
            assert second.told[0][2].outcome == Outcome.DONE
            assert not wrongs
            await until(lambda: shell.machine.servers.busy == 0)
        finally:
            serving.cancel()
            await shell.close()

    with service() as world:
        asyncio.run(main(*world))
