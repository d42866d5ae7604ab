"""Rows by what they are about: right and wrong input of each API."""
