"""Repeated kills of the broker under idempotent producers: acknowledged records survive, in order, once."""
