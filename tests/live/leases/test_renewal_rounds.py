"""One renewal after another, at a server that answers as it is told to: what is asked, what an
answer means for each lease, and a connection that ends within its time whatever comes."""

import socket
import threading
import time
from contextlib import closing, contextmanager

import pytest

from spillover.live.hosts.lookups import HOSTS, Hosts
from spillover.live.leases.renewal.child import Renewal
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.memory import THREAD
from spillover.live.leases.renewal.parent import NoParent
from spillover.live.leases.renewal.resp import RedisFailed, RespConnection, pack, run_script
from spillover.live.leases.renewal.rounds import Rounds
from spillover.live.leases.renewal.settings import make_plan
from spillover.live.redis.address import parse_address
from spillover.model.lease_times import LeaseTimes
from support.scripted_redis import bulk, rows, scripted_redis

LIMIT_S = 20.0
TIMES = LeaseTimes()
V4 = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))


def plan_for(url):
    return make_plan(url, "g", 4, TIMES, node="a", incarnation="i")


@contextmanager
def rounds_at(memory, *answers):
    """The renewals of a member whose server gives these answers in turn."""
    left = iter(answers)
    with scripted_redis(lambda _: next(left)) as server:
        rounds = Rounds(plan_for(server.url), memory)
        try:
            yield rounds, server
        finally:
            rounds.close()


def renewed(flags, era="e1", displaced=0):
    return rows(bulk(era), b":%d\r\n" % displaced, bulk(flags))


# --- rounds -----------------------------------------------------------------------------------


def test_what_is_over_is_told_as_lost_and_not_sent(memory):
    """What the answer keeps lasts from when it was asked for, less the margin."""
    for partition in (0, 1, 2, 3):
        memory.grant(partition, 7, lease_now_s() + 60.0, THREAD)
    memory.limit(2, lease_now_s() - 1.0)
    with rounds_at(memory, renewed("120"), renewed("", "e2", 1), renewed("")) as (rounds, server):
        before_s = lease_now_s()
        said = rounds.renew([(0, 7), (1, 7), (2, 7), (3, 7)])
        after_s = lease_now_s()
        assert said["pairs"] == [(0, 7), (1, 7), (3, 7), (2, 7)]
        assert (said["era"], said["displaced"], said["flags"]) == ("e1", False, "1200")
        assert before_s <= said["sent_s"] <= after_s
        assert 0.0 <= said["took_s"] <= after_s - before_s
        kept_to_s = said["sent_s"] + 180.0 - 18.0
        assert [memory.deadline_s(p, 7) for p in range(4)] == [kept_to_s, kept_to_s, 0.0, 0.0]
        memory.limit(2, 0.0)
        memory.renewed(2, 7, lease_now_s() + 60.0)
        assert memory.deadline_s(2, 7) == 0.0, "lost for good"
        said = rounds.renew([])
        assert (said["era"], said["displaced"], said["flags"], said["pairs"]) == (
            "e2", True, "", [],
        )  # fmt: skip
        rounds.renew([])
    plan = plan_for("redis://h")
    (first, second, third) = server.asked
    assert first[:3] == ["EVALSHA", plan.digest, str(len(plan.keys))]
    assert first[3:7] == plan.keys
    assert [words[7] for words in (first, second, third)] == ["", "e1", "e2"]
    assert first[9:-6] == plan.arguments[1:]
    assert first[-6:] == ["0", "7", "1", "7", "3", "7"]
    assert second[9:] == plan.arguments[1:]
    assert server.accepted == 1


@pytest.mark.parametrize(
    ("answer", "problem", "refused"),
    [
        (renewed("1"), "Redis answered a renewal with", False),
        (rows(bulk("e1"), b":0\r\n"), "Redis answered a renewal with", False),
        (rows(bulk("e1"), bulk("0"), bulk("11")), "Redis answered a renewal with", False),
        (b"+OK\r\n", "Redis answered a renewal with", False),
        (b"-READONLY no\r\n", "Redis refused: READONLY no", True),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "Redis cannot be reached: what answers there", False),
        (b"\r\n", "Redis cannot be reached: what answers there", False),
        (b":x\r\n", "Redis cannot be reached: invalid literal", False),
    ],
)
def test_a_renewal_without_a_usable_answer_changes_nothing(memory, answer, problem, refused):
    """Leases are unknown, not lost; who refused may be another server by the next time."""
    to_s = lease_now_s() + 60.0
    for partition in (0, 1):
        memory.grant(partition, 7, to_s, THREAD)
    with rounds_at(memory, answer, renewed("11")) as (rounds, server):
        said = rounds.renew([(0, 7), (1, 7)])
        assert said["problem"].startswith(problem)
        assert said["refused"] is refused
        assert said.keys() == {"sent_s", "problem", "refused"}
        assert [memory.deadline_s(p, 7) for p in (0, 1)] == [to_s, to_s]
        assert rounds.renew([(0, 7), (1, 7)])["flags"] == "11"
        assert server.accepted == (1 if "answered" in problem else 2)
    assert server.asked[1][7] == "", "the era of an answer that was none is not taken"


def test_a_life_goes_on_a_period_after_what_was_answered(memory):
    for partition in (0, 1):
        memory.grant(partition, 7, lease_now_s() + 600.0, THREAD)
    theirs, ours = socket.socketpair()
    told = iter([renewed("11"), renewed("1"), renewed("1")])
    with theirs, ours, scripted_redis(lambda _: next(told)) as server:
        renewal = Renewal(plan_for(server.url), memory, theirs, NoParent())
        renewal._work(lease_now_s())
        assert renewal._unsaid == [], "it has not begun"
        now_s = lease_now_s()
        for hung in ([], [(1, 7)], [(1, 7)]):
            renewal._guard.hung = lambda *_, hung=hung: hung
            renewal._due_s = now_s
            renewal._work(now_s)
            assert now_s + 0.9 * 60.0 <= renewal._due_s <= now_s + 60.0
            renewal._work(now_s)
        said = [resp_line.decode() for resp_line in renewal._unsaid]
        assert ['"sent_s"' in line for line in said] == [True, False, True, True]
        assert said[1] == '{"hung": [[1, 7]]}\n'
        assert ['"hung": [[1, 7]]' in line for line in said] == [False, True, True, True]
        renewal._rounds.close()
    assert [words[-4:][::2] for words in server.asked[:1]] == [["0", "1"]]
    assert [words[-3:] for words in server.asked[1:]] == [["180000", "0", "7"]] * 2


# --- the connection ---------------------------------------------------------------------------


def connect(url, timeout_s=LIMIT_S, on_call=lambda: None, hosts=HOSTS):
    return RespConnection(parse_address(url), timeout_s, on_call, hosts)


def ping(connection):
    return connection.call(pack([b"PING"]))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (bulk(""), b""),
        (bulk(None), None),
        (bulk("a\r\nb"), b"a\r\nb"),
        (rows(), []),
        (rows(b":-1\r\n", rows(bulk("x"), b"+y\r\n"), bulk(None)), [-1, [b"x", b"y"], None]),
    ],
)
def test_an_answer_is_read_to_its_end_and_no_further(answer, expected):
    """However it comes in pieces: the next one begins where it ends."""
    pause = threading.Event()

    def in_pieces(_):
        for byte in answer:
            server._lines[-1].sendall(bytes([byte]))
            pause.wait(0.0005)

    with scripted_redis(in_pieces) as server, closing(connect(server.url)) as connection:
        for _ in range(2):
            assert ping(connection) == expected
        assert server.accepted == 1


def test_an_answer_that_never_ends_ends_with_the_time_of_its_call():
    """Something comes all the time, of a line as of text."""
    pause = threading.Event()
    stops = threading.Event()

    def for_ever(words):
        line = server._lines[-1]
        if words == ["GET"]:
            line.sendall(b"$1000000\r\n")
        until_s = time.monotonic() + 2.0 * LIMIT_S
        while time.monotonic() < until_s and not stops.is_set():
            line.sendall(b"x")
            pause.wait(0.01)

    with scripted_redis(for_ever) as server:
        for word in (b"PING", b"GET"):
            with (
                closing(connect(server.url, 0.2)) as connection,
                pytest.raises(RedisFailed, match="Redis did not answer in time"),
            ):
                connection.call(pack([word]))
            assert connection._socket is None
        stops.set()


def test_connecting_and_asking_take_no_longer_than_a_call_may():
    """The way in has the rest of its time, and so has all that is said on it."""
    with scripted_redis(lambda _: None) as server:
        connection = connect(server.url)
        with connection._open(time.monotonic() + 5.0) as opened:
            assert 0.5 < opened.gettimeout() <= 5.0
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(("scheme", "size_bytes"), [("rediss", 1), ("redis", 50_000_000)])
def test_a_server_that_does_not_read_is_not_waited_for(scheme, size_bytes):
    """Neither for its part of TLS nor for room for what is asked."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        connection = connect(f"{scheme}://{place}?ssl_cert_reqs=none", 0.2)
        with pytest.raises(RedisFailed, match="Redis did not answer in time"):
            connection.call(b"x" * size_bytes)


def test_a_name_that_leads_nowhere_any_more_leads_where_it_did():
    """The name service may be gone with all else; before it ever answered there is no way."""
    answers, now_s = iter([[V4]]), [0.0]

    def resolve(*_, **__):
        for answer in answers:
            return answer
        raise socket.gaierror(-2, "Name or service not known")

    with scripted_redis(lambda _: b"+PONG\r\n") as server:
        hosts = Hosts(resolve, lambda: now_s[0])
        connection = connect(f"redis://redis.example:{server.port}", hosts=hosts)
        for now_s[0] in (0.0, 10.0):
            assert ping(connection) == b"PONG"
            connection.close()
        with pytest.raises(RedisFailed, match=r"cannot be reached: .*not known"):
            ping(connect(f"redis://other.example:{server.port}", hosts=hosts))


def test_a_call_ends_in_time_however_long_a_lookup_takes():
    goes_on = threading.Event()
    hosts = Hosts(lambda *_, **__: [V4] if goes_on.wait(LIMIT_S) else [])
    with scripted_redis(lambda _: b"+PONG\r\n") as server:
        url = f"redis://redis.example:{server.port}"
        with pytest.raises(RedisFailed, match="did not answer in time"):
            ping(connect(url, 0.1, hosts=hosts))
        goes_on.set()
        with closing(connect(url, hosts=hosts)) as connection:
            assert ping(connection) == b"PONG"


def test_a_script_is_sent_in_full_once_to_a_server_that_does_not_know_it():
    """An error of another kind is a refusal, after which a call connects anew."""
    told = iter([b"-NOSCRIPT no\r\n", b":1\r\n", b":2\r\n", b"-ERR no\r\n", b":3\r\n"])
    with scripted_redis(lambda _: next(told)) as server, closing(connect(server.url)) as connection:

        def run():
            return run_script(connection, "return 1", "d" * 40, [b"0"])

        assert (run(), run()) == (1, 2)
        with pytest.raises(RedisFailed, match=r"^Redis refused: ERR no$") as failed:
            run()
        assert failed.value.refused
        assert server.accepted == 1
        assert run() == 3
        assert server.accepted == 2
    short, full = ["EVALSHA", "d" * 40, "0"], ["EVAL", "return 1", "0"]
    assert server.asked == [short, full, short, short, short]
