"""The running node: it carries out its machine's commands, and feeds in what happens."""
