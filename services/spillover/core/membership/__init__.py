"""Who belongs to a federation: its configuration, how it spreads, and what a change asks for."""
