"""Shared parts of the clients: setting up toolchains, and the records and cases in each language."""
