"""Coordinators of groups, transactions and share groups: a package each, and their common runtime."""
