"""Texts of schemas, and what the libraries that others use make of them."""
