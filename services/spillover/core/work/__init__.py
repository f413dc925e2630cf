"""The times that requests are expected to run, learned by what they say of their sizes."""
