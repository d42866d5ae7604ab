"""Bugs of released clients, each shown by one command."""
