"""Real programs for tests: a LiveKit server, workers, engines and callers, all on loopback."""
