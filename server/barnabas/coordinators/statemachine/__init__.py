"""Vocabulary of replicated state machines: events, what they decide, and which partition keeps an id. Pure."""
