"""Programs about Spillover: they show it, measure it, repeat published figures, deploy it."""
