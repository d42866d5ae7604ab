"""Behaviour that takes several requests, one module for each part of the protocol."""
