"""Rules of others beside ours, on the product's simulators."""
