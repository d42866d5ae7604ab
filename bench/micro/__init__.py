"""The parts of a request's way, timed alone."""
