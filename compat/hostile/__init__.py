"""Attacks on a running broker, and what they do to a client beside them that sends little."""
