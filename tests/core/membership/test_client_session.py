"""One client's session: stories."""

import math
from collections import Counter
from random import Random

import pytest

from spillover.core.membership.client_session import (
    ASKED_TO_WAIT_MAX,
    COME_BACK_MAX,
    CONNECT_S,
    LONGEST_PAUSE_S,
    ClientSession,
)
from spillover.core.membership.session_events import (
    Announced,
    Connect,
    Connected,
    Ended,
    Leave,
    Listed,
    Lost,
    NotReached,
    Parting,
    SessionServer,
    Started,
    TimerFired,
    Use,
)
from support.client_sessions import stored, told, urls


def in_session(names="abc", *, at=None, version=1, seed=1, **options):
    """A client with a session at the first server it asks, or at this one; and where that is."""
    client = ClientSession("me", urls(names), Random(seed), **options)
    (asked,) = client.handle(Started(), 0.0)
    while at is not None and asked.server.url != f"http://{at}":
        (asked,) = client.handle(NotReached(asked.attempt), 0.0)
    here = asked.server.url.removeprefix("http://")
    client.handle(Connected(asked.attempt, told(here, names, version)), 0.0)
    client.check()
    return client, asked.attempt, here


def connects(commands):
    return [command for command in commands if isinstance(command, Connect)]


def asked_in_turn(client, commands, now_s):
    """The servers that are asked if nobody can be reached, until it pauses or gives up."""
    asked = []
    while found := connects(commands):
        asked.append(found[0].server.url.removeprefix("http://"))
        commands = client.handle(NotReached(found[0].attempt), now_s)
    return asked


def test_begins_with_any_of_the_urls_and_follows_no_list_that_is_the_same():
    firsts = {
        ClientSession("me", urls("abc"), Random(seed)).handle(Started(), 0.0)[0].server.url
        for seed in range(30)
    }
    assert firsts == set(urls("abc"))
    client, _, here = in_session()
    assert client.in_use == SessionServer(here, f"http://{here}")
    assert math.isinf(client.next_deadline())


def test_begins_with_the_first_url_if_told_to():
    for seed in range(20):
        client = ClientSession("me", urls("cab"), Random(seed), in_order=True)
        assert client.handle(Started(), 0.0)[0].server.url == urls("c")[0]


def test_a_change_is_acted_on_after_a_wait_and_new_requests_go_to_the_new_server_first():
    client, attempt, _ = in_session("ab", at="a")
    assert client.handle(Announced(attempt, told("a", "bc", 2)), 10.0) == []
    assert 10.0 <= client.next_deadline() <= 15.0
    now_s = client.next_deadline()
    (asked,) = client.handle(TimerFired(), now_s)
    assert asked.server.id == "c"  # as many as before: who goes, goes to the new one
    commands = client.handle(Connected(asked.attempt, told("c", "bc", 2)), now_s)
    assert commands == [Use(SessionServer("c", "http://c")), Leave(attempt, moved=True)]
    client.handle(Parting(attempt, 0.0), now_s)
    assert math.isinf(client.next_deadline()), "it is at another one now"
    client.check()


def test_newer_announcements_replace_the_list_and_not_the_wait():
    client, attempt, _ = in_session("ab", at="a")
    client.handle(Announced(attempt, told("a", "bc", 2)), 10.0)
    due_s = client.next_deadline()
    client.handle(Announced(attempt, told("a", "bcd", 3)), 11.0)
    assert client.next_deadline() == due_s
    client.handle(Announced(attempt, told("a", "ab", 4)), 11.0)
    assert client.handle(TimerFired(), due_s) == []  # all is as it was when it last acted
    assert math.isinf(client.next_deadline())


def test_older_lists_and_the_same_list_mean_nothing():
    client, attempt, _ = in_session("ab", at="a", version=5)
    for version, names, by in ((4, "bc", "z"), (5, "bc", "a"), (6, "ba", "a")):
        client.handle(Announced(attempt, told("a", names, version, by=by)), 1.0)
        assert math.isinf(client.next_deadline())
    client.handle(Announced(attempt, told("a", "bc", 6, by="b")), 1.0)  # later by its author
    assert math.isfinite(client.next_deadline())


@pytest.mark.parametrize(
    "listed",
    [
        (),
        (SessionServer("a", "http://a"), SessionServer("a", "http://b")),
        (SessionServer("a", "http://a"), SessionServer("b", "http://a/")),
        (SessionServer("a", "http://a"), SessionServer("b", "")),
        (SessionServer("", "http://a"),),
    ],
)
def test_a_list_that_is_none_is_refused_and_the_old_one_stays(listed):
    client, attempt, _ = in_session("ab")
    lie = told("a", "b", 9)._replace(servers=listed)
    assert client.handle(Announced(attempt, lie), 1.0) == []
    assert (client.refused, math.isinf(client.next_deadline())) == (1, True)
    assert {server.id for server in client.servers} == {"a", "b"}


def test_the_groups_are_asked_in_their_order():
    """Four servers, own gone, two survivors, eight new ones: the new ones, then the survivors,
    then a pause, then all of them."""
    client, attempt, _ = in_session("0123", at="0")
    client.handle(Announced(attempt, told("0", "23456789xy", 2)), 0.0)
    now_s = client.next_deadline()
    asked = asked_in_turn(client, client.handle(TimerFired(), now_s), now_s)
    assert (set(asked[:8]), set(asked[8:])) == (set("456789xy"), set("23"))
    assert len(asked) == 10
    later_s = client.next_deadline()
    assert later_s > now_s
    again = asked_in_turn(client, client.handle(TimerFired(), later_s), later_s)
    assert sorted(again) == sorted("0123456789xy".replace("0", "")) or set(again) > set("2345")
    assert client.in_use == SessionServer("0", "http://0")  # it is still there


def test_who_may_stay_stays_when_no_new_server_is_reached():
    client, attempt, _ = in_session("a", at="a")
    lists = told("a", "abcd", 2, clients=10, rank=9)
    client.handle(Announced(attempt, lists), 0.0)
    now_s = client.next_deadline()
    asked = asked_in_turn(client, client.handle(TimerFired(), now_s), now_s)
    assert set(asked) == set("bcd")
    for _ in range(COME_BACK_MAX):  # they may not have started yet
        assert now_s < client.next_deadline() <= now_s + LONGEST_PAUSE_S
        now_s = client.next_deadline()
        assert set(asked_in_turn(client, client.handle(TimerFired(), now_s), now_s)) == set("bcd")
    assert math.isinf(client.next_deadline())
    assert client.in_use == SessionServer("a", "http://a")
    client.check()


def test_a_lost_server_is_left_at_once_and_asked_last():
    client, attempt, _ = in_session("abcd", at="b")
    asked = asked_in_turn(client, client.handle(Lost(attempt), 7.0), 7.0)
    assert (set(asked[:3]), asked[3:]) == (set("acd"), ["b"])
    pauses = []
    for _ in range(12):
        pauses.append(client.next_deadline() - 7.0)
        assert set(asked_in_turn(client, client.handle(TimerFired(), 1e3), 7.0)) == set("abcd")
    assert 0.1 <= pauses[0] <= 0.2
    assert LONGEST_PAUSE_S / 2 <= pauses[-1] <= LONGEST_PAUSE_S


def test_a_loss_during_the_wait_ends_the_wait():
    client, attempt, _ = in_session("ab", at="a")
    client.handle(Announced(attempt, told("a", "acd", 2)), 0.0)
    (asked,) = client.handle(Lost(attempt), 0.5)
    assert asked.server.id in "cd"
    assert set(asked_in_turn(client, [asked], 0.5)) == set("acd")


def test_an_update_while_it_reconnects_counts_from_the_server_that_it_chose():
    """Whoever has chosen a server is there, for the next change: it goes on to it."""
    client, attempt, _ = in_session("ab", at="a", change_wait_s=0.0)
    client.handle(Announced(attempt, told("a", "bc", 2)), 0.0)
    (asked,) = client.handle(TimerFired(), 0.0)
    assert asked.server.id == "c"
    client.handle(Announced(attempt, told("a", "cb", 3)), 0.1)
    client.handle(Announced(attempt, told("a", "c", 4)), 0.1)
    assert client.handle(TimerFired(), 0.1) == []  # c stays, so it is still on its way there
    gone = client.handle(Announced(attempt, told("a", "d", 5)), 0.2)
    gone = client.handle(TimerFired(), 0.2)
    assert gone[0] == Leave(asked.attempt)
    assert connects(gone)[0].server.id == "d"
    late = client.handle(Connected(asked.attempt, told("c", "c", 4)), 0.3)
    assert late == [Leave(asked.attempt)]


def test_a_server_that_asks_to_wait_is_waited_for_by_who_has_another():
    client, attempt, _ = in_session("ab", at="a", change_wait_s=0.0)
    client.handle(Announced(attempt, told("a", "bc", 2)), 0.0)
    (asked,) = client.handle(TimerFired(), 0.0)
    now_s = 0.0
    for _ in range(ASKED_TO_WAIT_MAX):
        assert client.handle(NotReached(asked.attempt, 1.0), now_s) == []
        assert 0.5 <= client.next_deadline() - now_s <= 1.5
        now_s = client.next_deadline()
        (asked,) = client.handle(TimerFired(), now_s)
        assert asked.server.id == "c"
    (asked,) = client.handle(NotReached(asked.attempt, 1.0), now_s)
    assert asked.server.id == "b"
    lost, attempt, _ = in_session("abc", at="a")
    (asked,) = lost.handle(Lost(attempt), 0.0)
    assert connects(lost.handle(NotReached(asked.attempt, 1.0), 0.0))


def test_who_was_let_in_may_be_asked_to_wait_as_often_the_next_time():
    client, attempt, _ = in_session("abc", at="a", change_wait_s=0.0)
    now_s = 0.0
    for version, servers in ((2, "bc"), (3, "ad")):
        client.handle(Announced(attempt, told(client.in_use.id, servers, version)), now_s)
        (asked,) = connects(client.handle(TimerFired(), now_s))
        for _ in range(ASKED_TO_WAIT_MAX):
            first = asked.server
            assert client.handle(NotReached(asked.attempt, 1.0), now_s) == []
            now_s = client.next_deadline()
            (asked,) = client.handle(TimerFired(), now_s)
            assert asked.server == first
        client.handle(Connected(asked.attempt, told(asked.server.id, servers, version)), now_s)
        attempt = asked.attempt
        client.check()


@pytest.mark.parametrize(
    ("asked_s", "least_s", "most_s"), [(0.0, 0.1, 0.3), (2.0, 1.0, 3.0), (1e9, 5.0, 15.0)]
)
def test_how_long_one_waits_that_is_asked_to_is_bounded_and_drawn(asked_s, least_s, most_s):
    """Those that are asked at one instant must not come again at one instant."""
    waits_s = set()
    for seed in range(20):
        client, attempt, _ = in_session("ab", at="a", seed=seed, change_wait_s=0.0)
        client.handle(Announced(attempt, told("a", "bc", 2)), 0.0)
        (asked,) = client.handle(TimerFired(), 0.0)
        client.handle(NotReached(asked.attempt, asked_s), 0.0)
        waits_s.add(client.next_deadline())
    assert least_s <= min(waits_s) < max(waits_s) <= most_s
    assert len(waits_s) == 20


def test_a_node_that_ends_makes_nobody_wait_longer_than_a_change_does():
    """Whatever it says; and who is to act sooner does."""
    for within_s in (1e9, -1.0):
        client, attempt, _ = in_session("abc", at="a", change_wait_s=2.0)
        client.handle(Parting(attempt, within_s), 3.0)
        assert 3.0 <= client.next_deadline() <= 5.0
    for seed in range(20):
        client, attempt, _ = in_session("abc", at="a", seed=seed)
        client.handle(Announced(attempt, told("a", "bcd", 2)), 0.0)
        acts_s = client.next_deadline()
        client.handle(Parting(attempt, 5.0), 0.0)
        assert client.next_deadline() <= acts_s


def test_a_node_that_ends_is_left_within_its_time_and_kept_until_then():
    client, attempt, _ = in_session("abc", at="a")
    assert client.handle(Parting(attempt, 1.0), 3.0) == []
    now_s = client.next_deadline()
    assert 3.0 <= now_s <= 4.0
    (asked,) = client.handle(TimerFired(), now_s)
    assert asked.server.id in "bc"
    assert client.in_use is not None
    commands = client.handle(Connected(asked.attempt, told(asked.server.id, "abc")), now_s)
    assert commands[-1] == Leave(attempt, moved=True)
    assert math.isinf(client.next_deadline())


def test_an_attempt_without_an_answer_is_given_up():
    client = ClientSession("me", urls("ab"), Random(1))
    (asked,) = client.handle(Started(), 0.0)
    assert client.next_deadline() == CONNECT_S
    gone, other = client.handle(TimerFired(), CONNECT_S)
    assert gone == Leave(asked.attempt)
    assert other.server != asked.server


def test_a_federation_that_counts_from_0_again_is_followed():
    client, attempt, _ = in_session("a", at="a", version=7)
    (asked,) = client.handle(Lost(attempt), 0.0)
    assert client.handle(NotReached(asked.attempt), 0.0) == []
    (asked,) = client.handle(TimerFired(), 1.0)
    client.handle(Connected(asked.attempt, told("a", "ab", 0, by="")), 1.0)
    assert {server.id for server in client.servers} == {"a"}
    assert math.isfinite(client.next_deadline())


def test_the_end_leaves_everything():
    client, attempt, _ = in_session("ab", at="a", change_wait_s=0.0)
    client.handle(Announced(attempt, told("a", "bc", 2)), 0.0)
    (asked,) = client.handle(TimerFired(), 0.0)
    assert client.handle(Ended(), 0.0) == [Leave(asked.attempt), Leave(attempt)]
    assert client.handle(Connected(asked.attempt, told("c", "bc", 2)), 0.0) == [
        Leave(asked.attempt)
    ]
    assert client.handle(Lost(attempt), 0.0) == []
    client.check()


def test_a_node_that_has_resumed_has_its_client_again_where_no_other_one_takes_it():
    client, attempt, here = in_session("ab", at="a")
    client.handle(Parting(attempt, 0.0), 1.0)
    commands = client.handle(TimerFired(), client.next_deadline())
    assert asked_in_turn(client, commands, 1.0) == ["b"]
    commands = client.handle(TimerFired(), client.next_deadline())
    while connects(commands)[0].server.url != f"http://{here}":
        commands = client.handle(NotReached(connects(commands)[0].attempt), 2.0)
    again = connects(commands)[0].attempt
    commands = client.handle(Connected(again, told("a", "ab")), 2.0)
    assert Leave(attempt, moved=True) in commands
    assert math.isinf(client.next_deadline())


def test_ranks_that_are_said_again_have_the_surplus_go():
    """To any other server, and of the others nobody."""
    to = Counter()
    for rank in range(20):
        client, attempt, here = in_session("abc", at="a", version=2)
        again = told(here, "abc", 2, clients=20, rank=rank, surplus=0.4)
        client.handle(Announced(attempt, again), 10.0)
        if math.isfinite(client.next_deadline()):
            (command,) = client.handle(TimerFired(), client.next_deadline()) or [None]
            to[command and command.server.url[-1]] += 1
    assert to == {None: 16, "b": 2, "c": 2}
    client, attempt, here = in_session("abc", at="a", version=2)
    assert client.handle(Announced(attempt, told(here, "abc", 2, clients=20, rank=19)), 10.0) == []
    assert math.isinf(client.next_deadline())


def test_what_the_store_has_is_asked_when_all_that_is_known_has_gone():
    client = ClientSession("me", urls("ab"), Random(1))
    asked = asked_in_turn(client, client.handle(Started(), 0.0), 0.0)
    assert set(asked) == {"a", "b"}, "it pauses now"
    commands = client.handle(Listed(stored("cd", 7)), 0.1)
    asked = asked_in_turn(client, commands, 0.1)
    assert (set(asked[:2]), set(asked[2:])) == ({"c", "d"}, {"a", "b"})
    assert client.handle(Listed(stored("cd", 7)), 0.1) == [], "nobody new: it does not spin"
    (again,) = client.handle(TimerFired(), client.next_deadline())
    commands = client.handle(Connected(again.attempt, told("c", "cd", 7)), 20.0)
    assert [type(command) for command in commands] == [Use]
    client.check()


def test_what_the_store_has_is_remembered_by_who_has_a_session():
    """It may be older than what the node says, and know of a server that answers all the same."""
    client, attempt, _ = in_session("ab", at="a", version=7)
    assert client.handle(Listed(stored("abx", 5)), 0.0) == []
    asked = set(asked_in_turn(client, client.handle(Lost(attempt), 1.0), 1.0))
    now_s = client.next_deadline()
    asked |= set(asked_in_turn(client, client.handle(TimerFired(), now_s), now_s))
    assert asked == set("abx")


def test_a_change_that_the_store_tells_is_acted_on_by_the_rank_that_the_node_tells_soon():
    """Of nine clients at one of two servers, a third one takes three: those with the first ranks,
    though each has heard of it in the store first."""
    for hears_first in (False, True):
        moved = []
        for rank in range(9):
            client, attempt, _ = in_session("ab", at="a")
            if hears_first:
                assert client.handle(Listed(stored("abc", 2)), 1.0) == []
            said = told("a", "abc", 2, clients=9, rank=rank)
            assert client.handle(Announced(attempt, said), 1.1) == []
            moved += [rank] * len(connects(client.handle(TimerFired(), client.next_deadline())))
        assert len(moved) == 3, hears_first


def test_the_store_alone_moves_clients_too_and_lies_move_none():
    client, _, _ = in_session("ab", at="a", version=3)
    for lie in (stored("", 9), stored("bb", 9), stored("b", 2)):
        assert client.handle(Listed(lie), 1.0) == []
        assert math.isinf(client.next_deadline())
    assert client.refused == 2
    assert client.handle(Listed(stored("b", 4)), 1.0) == []
    (asked,) = client.handle(TimerFired(), client.next_deadline())
    assert asked.server.url == "http://b"


def test_no_server_is_asked_twice_in_a_round():
    """Whatever lists it came from: urls that were given, what the store says again and again, and
    what is left when the session is lost on the way."""
    client = ClientSession("me", [*urls("ab"), "http://a/"], Random(1))
    commands = client.handle(Started(), 0.0)
    for version, names in enumerate(("c", "d", "cd", "dc"), 1):
        assert client.handle(Listed(stored(names, version)), 0.0) == []
        client.check()
    assert sorted(asked_in_turn(client, commands, 0.0)) == ["a", "b", "c", "d"]

    client, attempt, _ = in_session("ab", at="a")
    client.handle(Announced(attempt, told("a", "bc", 2)), 0.0)
    commands = client.handle(TimerFired(), client.next_deadline())
    assert client.handle(Lost(attempt), 5.0) == []  # it is on its way
    client.check()
    assert sorted(asked_in_turn(client, commands, 5.0)) == ["a", "b", "c"]


def test_one_that_a_newer_list_leaves_out_is_not_come_back_to():
    """Also where the client is on its way to the same server by both lists."""
    client, attempt, _ = in_session("a", change_wait_s=0.0)
    client.handle(Announced(attempt, told("a", "abc", 2, clients=3, rank=2)), 0.0)
    (asked,) = client.handle(TimerFired(), 0.0)
    there = asked.server.id
    client.handle(Announced(attempt, told("a", ("a", there, "d"), 3)), 1.0)
    assert client.handle(TimerFired(), 1.0) == []
    client.handle(NotReached(asked.attempt), 2.0)
    later = []
    while math.isfinite(client.next_deadline()):
        now_s = client.next_deadline()
        later += asked_in_turn(client, client.handle(TimerFired(), now_s), now_s)
    assert set(later) == {there}  # which it may come back to; it stays where it is
