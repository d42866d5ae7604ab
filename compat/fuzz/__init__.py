"""Millions of hostile inputs, and the guarantees that must hold for all of them: see README.md."""
