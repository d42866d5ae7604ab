"""Rows by subject: valid and invalid input of each API."""
