"""Two sites with pools of unlike servers, and bursts of one type at one of them after the other."""

from pathlib import Path
from random import Random

from spillover.inputs.topology_file import load_topology
from spillover.model.schedule import Arrival

TWO_SITES = Path(__file__).with_name("two-unlike-sites.yaml")
WAY_S = 0.02
DURATION_S = 24.0
BURSTS_S = {"east": (2.0, 6.0), "west": (13.0, 17.0)}
"""When more of llm comes than the site could serve alone."""

RATES = {
    ("east", "llm"): (2.0, 14.0),
    ("east", "embed"): (3.0, 3.0),
    ("west", "llm"): (3.0, 20.0),
    ("west", "embed"): (2.0, 2.0),
    ("west", "search"): (2.0, 2.0),
}
"""Requests per second, outside of bursts and in them."""

WORK_MS = 400.0
"""Mean, of an exponential law: at rate 1."""


def two_sites(policy="adaptive"):
    return load_topology(str(TWO_SITES)).with_policy(policy)


def schedule(seed, duration_s=DURATION_S):
    """Poisson arrivals of every type at every site."""
    made = []
    for (site, kind), (usual, high) in RATES.items():
        random, now_s = Random(f"{seed}/{site}/{kind}"), 0.0
        begins_s, ends_s = BURSTS_S[site]
        while True:
            now_s += random.expovariate(max(usual, high))
            if now_s >= duration_s:
                break
            work_ms = random.expovariate(1.0 / WORK_MS)
            rate = high if begins_s <= now_s < ends_s else usual
            if random.random() * max(usual, high) < rate:
                made.append(Arrival(round(now_s, 9), site, round(work_ms, 6), kind))
    return sorted(made, key=lambda arrival: arrival.time_s)
