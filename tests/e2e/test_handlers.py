"""A Python handler in worker processes, found beside the topology."""

import os
import signal
import zlib

MODULE = """
import zlib

def compress(payload):
    return len(zlib.compress(payload.encode(), 9))
"""


def test_worker_processes_end_with_their_node(tmp_path, up, ask):
    """Servers that are processes are not left behind, even where nobody could end them."""
    (tmp_path / "work.py").write_text(MODULE)
    (tmp_path / "work.yaml").write_text(
        "clusters: [{id: a, servers: 2, workers: process, handler: 'python:work:compress'}]\n"
    )
    bed, urls = up("work.yaml", "--no-restart", cwd=tmp_path)
    status, answer = ask(f"{urls['a']}/requests", {"payload": "words"})
    assert (status, answer["result"]) == (200, len(zlib.compress(b"words", 9)))
    workers = [one for one in bed.look().values() if "--multiprocessing-fork" in one]
    assert len(workers) == 2
    os.kill(bed.nodes()["a"], signal.SIGKILL)
    assert bed.process.wait(10) == 1
    bed.nothing_left()
