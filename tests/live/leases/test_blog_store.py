"""The blog's two hashes on a real Redis, as written: steps 3 to 6, step by step."""

from spillover.live.leases.blog_store import RedisBlogStore
from spillover.sim.leases.blog import BlogStore


async def test_the_steps_as_written(redis_server, redis_servers):
    steps = [
        ("grabbed", (0,), False),
        ("owner", (0,), None),
        ("set_grab_if_free", (0, "n1"), "n1"),
        ("set_grab_if_free", (0, "n2"), "n1"),
        ("grabbed", (0,), True),
        ("allocate", (0, "n1"), None),
        ("owner", (0,), "n1"),
        ("clear_grab", (0,), None),
        ("grabbed", (0,), False),
        ("set_grab_if_free", (0, "n2"), "n2"),
        # Nobody compares: the new one stands there, and the old one clears it away.
        ("allocate", (0, "n2"), None),
        ("clear_allocation", (0,), None),
        ("owner", (0,), None),
        ("allocate", (0, "n2"), None),
        ("clear_both", (0,), None),
        ("owner", (0,), None),
        ("grabbed", (0,), False),
    ]

    twin = BlogStore()
    store = RedisBlogStore(redis_server.url, redis_servers.new_name())
    for count, (operation, arguments, expected) in enumerate(steps, start=1):
        if operation == "clear_both":
            twin.clear_grab(*arguments)
            twin.clear_allocation(*arguments)
        else:
            assert getattr(twin, operation)(*arguments) == expected
        assert await getattr(store, operation)(*arguments) == expected
        assert store.round_trips == count
    await store.close()
