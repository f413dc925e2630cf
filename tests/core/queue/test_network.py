"""Producers and consumers together: nothing accepted is lost, nobody is stranded, whatever is lost
on the way and whoever dies."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.queue_network import EXPIRY_S, TAKE_S, VISIBILITY_S, WAY_S, Network

SETTLED_S = 6 * VISIBILITY_S + 2 * TAKE_S


def settle(network: Network, alive: list[str]) -> None:
    """Without loss from now on: everything that lives must reach its end."""
    network.loss = 0.0
    network.run(SETTLED_S)
    for producer in alive:
        machine = network.producers[producer]
        assert machine is not None
        assert network.acked[producer] == network.accepted[producer]
        assert machine.objects.acknowledged == machine.objects.produced
        assert machine.objects.buffered == len(machine.grants) == machine.waiting == 0


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    producers=st.integers(1, 5),
    consumers=st.integers(1, 6),
    loss=st.sampled_from([0.0, 0.0, 0.1, 0.3]),
    kills=st.booleans(),
)
def test_what_was_accepted_is_acknowledged_once_whatever_happens(
    seed: int, producers: int, consumers: int, loss: float, kills: bool
) -> None:
    random = Random(seed)
    network = Network(random, producers, consumers, loss=loss)
    network.start()
    ids = list(network.producers)
    for _ in range(60):
        network.offer(random.choice(ids))
        network.run(random.expovariate(20.0))
        if kills and random.random() < 0.05 and len(network.consumers) > 1:
            network.stop(random.choice(list(network.consumers)))
        if kills and random.random() < 0.03:
            living = [one for one in ids if network.producers[one] is not None]
            if len(living) > 1:
                network.kill(random.choice(living))
    settle(network, [one for one in ids if network.producers[one] is not None])


@pytest.mark.parametrize("seed", range(20))
def test_no_consumer_waits_longer_than_the_expiry_and_a_round_while_a_buffer_has_an_object(
    seed: int,
) -> None:
    random = Random(seed)
    network = Network(random, producers=12, consumers=3)
    network.start()
    network.run(2.5 * EXPIRY_S)  # all are parked, somewhere
    assert network.handled == 0
    network.offer(random.choice(list(network.producers)))
    network.run(EXPIRY_S + 16 * 1.5 * WAY_S + 4 * WAY_S)
    assert network.handled >= 1


@pytest.mark.parametrize("seed", range(10))
def test_a_dead_producer_takes_no_parked_consumer_with_it(seed: int) -> None:
    random = Random(seed)
    network = Network(random, producers=6, consumers=8)
    network.start()
    network.run(1.0)
    victim = random.choice(list(network.producers))
    network.kill(victim)
    for producer in network.producers:
        if producer != victim:
            for _ in range(3):
                network.offer(producer)
    network.run(TAKE_S + 2 * EXPIRY_S)
    living = [one for one in network.producers if one != victim]
    settle(network, living)
    assert network.handled >= 15


def test_objects_of_one_producer_come_in_their_order() -> None:
    network = Network(Random(1), producers=1, consumers=1, buffers=10)
    for _ in range(10):
        network.offer("p0")
    network.run(1.0)
    network.start()
    network.run(SETTLED_S)
    first_given = list(dict.fromkeys(network.holders.values()))
    assert first_given == list(range(1, 11))
