"""Attacks on a running broker, and their effect on a concurrent quiet client."""
