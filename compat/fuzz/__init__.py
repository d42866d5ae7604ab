"""Inputs by the million that no client should send, and what must hold whatever they are: see README.md."""
