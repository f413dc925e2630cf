"""OpenAI's own client streams chats of llama.cpp's own server through the doors of two sites, with
more at once than run at once: none fails. The server ends each stream with its connection.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from support import commands, real_services
from support.ports import free_port, free_ports, free_row

service_of = real_services.service_of

AT_ONCE = 8
CHATS = 40

SITES = """\
clusters:
  - {{id: paris, servers: 4, service_ms: 20, handler: "proxy:{llama}", proxy_url: "{doors[0]}"}}
  - {{id: lyon, servers: 4, service_ms: 20, handler: "proxy:{gone}", proxy_url: "{doors[1]}"}}
links: [{{between: [paris, lyon]}}]
"""


@pytest.fixture(scope="module")
def doors(service_of, module_start, tmp_path_factory):
    """The doors by the way of what is asked there: Lyon has no server, and hands on to Paris."""
    llama, gone = service_of("llama.cpp").url, f"http://127.0.0.1:{free_port()}"
    found = [f"http://127.0.0.1:{port}" for port in free_ports(2)]
    file = tmp_path_factory.mktemp("sites") / "sites.yaml"
    file.write_text(SITES.format(llama=llama, gone=gone, doors=found))
    options = ("--json", "--port", str(free_row(2)))
    module_start(*commands.SPILLOVER, "up", str(file), *options).ready()
    return dict(zip(("paris", "lyon,paris"), found, strict=True))


@pytest.mark.parametrize("way", ["paris", "lyon,paris"])
def test_no_stream_fails(way, doors):
    with openai.OpenAI(base_url=f"{doors[way]}/v1", api_key="mine", max_retries=0) as client:

        def chat(number):
            question = [{"role": "user", "content": f"question {number}"}]
            try:
                answer = client.chat.completions.with_raw_response.create(
                    model="tiny", messages=question, stream=True, max_tokens=6
                )
                ends = [part.choices[0].finish_reason for part in answer.parse() if part.choices]
            except openai.OpenAIError as error:
                return repr(error)
            return answer.headers["spillover-path"], ends[-1] in {"stop", "length"}

        with ThreadPoolExecutor(AT_ONCE) as threads:
            told = Counter(threads.map(chat, range(CHATS)))
    assert told == {(way, True): CHATS}
