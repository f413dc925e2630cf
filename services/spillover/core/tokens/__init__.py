"""A pool of unlike servers: jobs of different types, each of which needs a token of a class that it
may join. What runs the jobs, and where else they could go, is decided elsewhere."""
