"""The way to Redis. What is kept there is the business of each mechanism."""
