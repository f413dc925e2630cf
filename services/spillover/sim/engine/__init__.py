"""Virtual time: the heap of things to happen, clocks that go wrong, random streams."""
