"""A federation's configuration in real time: how it travels, and the store that may keep it."""
