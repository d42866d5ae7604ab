"""Tiered storage of a broker (KIP-405): segments are copied to a store, expire there, and are read from there.

Nothing here is imported by a broker without tiered storage.
"""
