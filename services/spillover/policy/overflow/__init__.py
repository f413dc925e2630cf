"""The formulas of where a request goes when no server is free, who may wait, and when work
fails."""
