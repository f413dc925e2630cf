"""A site whose backend fails at once: Paris (2 servers, 20 requests/s) gets 40, Tokyo fails.

What is asked of it (2 seeds each, 20 in `make soak`, one in `make check`): clients of the
healthy site hardly notice, the failing site is used again soon after it is well, and nothing goes
back and forth at a constant share of failures.
"""

from functools import cache

import pytest

from support.failing_sites import count_failed, failing, play, two_sites
from support.few import all_in_soak, few_at_first


@cache
def play_healthy(seed, *, tokyo, lasts_s):
    """Without any fault: played once, whoever compares with it."""
    return play(seed, [], tokyo=tokyo, lasts_s=lasts_s)


SEEDS = few_at_first(all_in_soak(range(1, 21), 1), 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("begins_s", "retry_after_ms"), [(8.0, 0.0), pytest.param(0.0, 5000.0, marks=pytest.mark.slow)]
)
def test_what_surely_was_not_run_reaches_no_client(seed, begins_s, retry_after_ms):
    """503: it is decided again, by Tokyo for its own clients and by Paris for its."""
    fault = failing(begins_s, status=503, retry_after_ms=retry_after_ms)
    played = play(seed, [fault], lasts_s=15.0)
    assert played.errors("paris") == []
    assert played.errors("tokyo") == []
    assert played.done_at("tokyo", begins_s + 0.2, 1e9) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_what_may_have_run_ends_few_clients_of_the_healthy_site(seed):
    """500 at once, without keys: at most 1 % of the requests, within a second of the first."""
    begins_s = 8.0
    played = play(seed, [failing(begins_s)], lasts_s=20.0)
    errors = played.errors("paris")
    requests = sum(home == "paris" for _, home, _, _ in played.ends)
    assert len(errors) <= requests / 100
    assert not errors or max(errors) - min(errors) <= 1.0
    (became,) = played.changes["tokyo"]
    assert became - begins_s <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_backend_that_fails_often_does_little_more_harm_than_alone(seed):
    """40 % of it: in all at most 1.1 times the errors that the failing site has by itself."""
    fault = [failing(share=0.4)]
    together = play(seed, fault, lasts_s=20.0)
    alone = play(seed, fault, lasts_s=20.0, topology=two_sites(policy="isolated"))
    assert count_failed(together) <= 1.1 * count_failed(alone)
    assert count_failed(together) < 0.6 * count_failed(alone), "and mostly far fewer"


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"status": 503}, {"share": 0.4}])
@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_used_in_full_soon_after_it_is_well_again(seed, how):
    """Within five seconds of the backend's healing as much is done there as without any fault."""
    played = play(seed, [failing(5.0, **how), failing(10.0, share=0.0)], lasts_s=25.0)
    healthy = play_healthy(seed, tokyo=10.0, lasts_s=25.0)
    done, usually = (one.done_at("tokyo", 15.0, 25.0) for one in (played, healthy))
    assert done >= 0.95 * usually
    assert not played.clusters["tokyo"].machine.health.degraded


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_where_all_fail_nobody_goes_back_and_forth_nor_pays_for_it_later(seed):
    """A database that both sites need is gone for 30 s: each is found to fail, and goes on since
    the other is no better. Once it is back, both are well within seconds."""
    sites = ("paris", "tokyo")
    faults = [failing(at_s, share, site) for site in sites for at_s, share in [(2, 1.0), (32, 0.0)]]
    played = play(seed, faults, paris=15.0, tokyo=15.0, lasts_s=60.0)
    for site in sites:
        became, ended = played.changes[site]
        assert became < 12.0, played.changes
        assert 32.0 < ended < 37.0, played.changes
        assert all(at_s < 33.0 for at_s in played.errors(site))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_site_without_clients_of_its_own_comes_back_too(seed):
    """What surely was not run costs its client nothing, so neighbors find out."""
    fault = [failing(2.0, status=503), failing(8.0, share=0.0)]
    played = play(seed, fault, tokyo=0.0, lasts_s=25.0)
    assert played.errors("paris") == []
    healthy = play_healthy(seed, tokyo=0.0, lasts_s=25.0)
    assert played.done_at("tokyo", 13.0, 25.0) >= 0.9 * healthy.done_at("tokyo", 13.0, 25.0)


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_a_poisonous_payload_stops_nobody(seed):
    """All that Paris' clients send fails, wherever it runs: both sites go on as before."""
    faults = [failing(2.0), failing(2.0, cluster="paris")]
    played = play(seed, faults, paris=40.0, tokyo=10.0, lasts_s=20.0)
    assert not [outcome for _, _, outcome, _ in played.ends if outcome.startswith("refused")]
    handed_on = sum(place == "tokyo" and home == "paris" for _, home, _, place in played.ends)
    assert handed_on > 0.1 * len(played.ends), "overflow is handed on all the same"
