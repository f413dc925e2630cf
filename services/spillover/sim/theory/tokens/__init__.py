"""Token dispatch solved exactly (Comte)."""
