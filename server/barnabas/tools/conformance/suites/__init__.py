"""Behaviour over several requests, one module for each part of the protocol."""
