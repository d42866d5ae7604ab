"""Vocabulary of replicated state machines: events, their decisions, and the partition of an id. Pure."""
