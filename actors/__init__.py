"""The library: actors, journal, models, tools and the agent loop. Knows no HTTP server."""
