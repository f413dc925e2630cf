"""Nodes with API tokens as processes: `up --tokens`, a file that changes, and what logs say."""

import json
import os
import signal
from pathlib import Path

from spillover.model.access import Role
from support.api_tokens import let_in

TWO = """
name: two
clusters:
  - {id: a, servers: 2, service_ms: 20}
  - {id: b, servers: 2, service_ms: 20}
links: [{between: [a, b], delay_ms: 5}]
"""


def shown(file, name, tenant, role):
    return {"Authorization": f"Bearer {let_in(file, name, tenant, role)}"}


def logged(bed, cluster, words):
    """What stands behind these words in lines of the log."""
    log = Path(json.loads(bed.stdout)["logs"][cluster]).read_text("utf-8")
    return [line.partition(words)[2] for line in log.splitlines() if words in line]


def test_a_testbed_with_api_tokens_lets_in_those_of_the_file_as_it_is_now(up, ask, until, tmp_path):
    (tmp_path / "two.yaml").write_text(TWO)
    tokens = tmp_path / "tokens.yaml"
    shop = shown(tokens, "shop", "shop", Role.SUBMIT)
    bed, urls = up(str(tmp_path / "two.yaml"), "--tokens", str(tokens))
    url = urls["a"]
    payload = {"payload": {"service_ms": 1}}
    assert ask(f"{url}/requests", payload)[0] == 401
    assert ask(f"{url}/requests", payload, shop)[0] == 200
    assert ask(f"{url}/state", None, shop)[0] == 403
    # A new one counts once the node is told to look.
    reader = shown(tokens, "reader", "", Role.READ)
    node = bed.nodes()["a"]
    os.kill(node, signal.SIGHUP)
    until(lambda: ask(f"{url}/state", None, reader)[0] == 200)
    # A bad file leaves them, and is told with its line.
    whole = tokens.read_text()
    tokens.write_text(whole + "- {name: third}\n")
    os.kill(node, signal.SIGHUP)
    words = "API tokens stay as they were: they cannot be read"
    until(lambda: logged(bed, "a", words))
    line = whole.count("\n") + 1
    assert f"{tokens}: line {line}, entry 3, sha256: expected" in logged(bed, "a", words)[0]
    assert ask(f"{url}/state", None, reader)[0] == 200
    # One that is taken out is not let in any more, also where it was before.
    tokens.write_text(whole.partition('- name: "reader"')[0])
    os.kill(node, signal.SIGHUP)
    until(lambda: ask(f"{url}/state", None, reader)[0] == 401)
    assert ask(f"{url}/requests", payload, shop)[0] == 200
    turned_away = logged(bed, "a", "turned away")
    assert "api_token=shop tenant=shop" in "".join(turned_away)
    secrets = [shop["Authorization"][7:], reader["Authorization"][7:]]
    everything = "".join(logged(bed, "a", " ")) + bed.stderr + "".join(bed.look().values())
    assert not [secret for secret in secrets if secret in everything]
    assert bed.end(signal.SIGTERM) == 0
