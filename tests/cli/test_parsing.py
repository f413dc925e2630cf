"""What options mean, and what commands tell of a node's and a producer's state: without any."""

import argparse

import pytest

from spillover.cli.node import _address_of
from spillover.cli.parsing import address, some_of, whole_number_in
from spillover.cli.plan import _print
from spillover.cli.queue import _shown
from spillover.model.errors import InputError


def test_a_range_has_both_its_ends():
    read = whole_number_in(0, 5)
    assert [read(text) for text in ("0", "5")] == [0, 5]
    for text in ("-1", "6", "x"):
        with pytest.raises(argparse.ArgumentTypeError):
            read(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:80", ("::1", 80)),
        ("host:65535", ("host", 65535)),
        *((text, None) for text in ("host", ":80", "host:", "host:65536", "host:x")),
    ],
)
def test_an_address_is_a_host_and_a_port(text, place):
    if place is not None:
        assert address(text) == place
    else:
        with pytest.raises(argparse.ArgumentTypeError, match="expected HOST:PORT"):
            address(text)


def test_names_are_taken_once_each():
    assert some_of(["a", "b"])("b,a") == ["b", "a"]
    for text in ("a,a", "c", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="expected some of a, b, once each"):
            some_of(["a", "b"])(text)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://h", ("h", 80)),
        ("https://h", ("h", 443)),
        ("https://h:8101", ("h", 8101)),
        (None, None),
    ],
)
def test_a_node_listens_where_its_url_leads(url, place):
    assert _address_of(url) == place


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        (0.25, "networking saves 25% of the servers"),
        (0.0, "networking saves 0% of the servers"),
        (-0.1, "networking takes 10% more servers"),
    ],
)
def test_a_plan_says_which_side_needs_fewer_servers(saved, words, capfd):
    side = {"servers": {"a": 4}, "p99_ms": {"a": 90.0}, "total": 4}
    told = {"topology": "t", "policy": "paper", "p99_ms": 100.0, "saved_share": saved}
    _print({**told, "isolated": side, "networked": side})
    assert capfd.readouterr().err.splitlines()[-1] == words


def test_a_producer_needs_an_api_token_only_where_others_want_to_see_one(monkeypatch):
    monkeypatch.delenv("SPILLOVER_TOKEN", raising=False)
    alone = argparse.Namespace(tokens=["tokens.yaml"], token_file=None)
    assert not _shown(alone, {})
    with pytest.raises(InputError, match="expected the secret of an API token with the role sub"):
        _shown(alone, {"p2": "http://127.0.0.1:1"})
