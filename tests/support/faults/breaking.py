"""What breaks the links of a federation in the middle of a burst."""

import asyncio


def spoiled(ways, for_s, healing, **faults):
    """The faults while the burst is everywhere, for a time, and `healing` afterwards."""

    async def fault(ring):
        await ring.holds_foreign("b")
        await ring.holds_foreign("c")
        await ring.set_links(*ways, **faults)
        await asyncio.sleep(for_s)
        await ring.set_links(*ways, **healing)

    return fault
