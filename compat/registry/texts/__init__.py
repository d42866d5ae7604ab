"""Texts of schemas, and the verdicts of the libraries of other registries on them."""
