"""Coordinators of groups, transactions and share groups: a package each, and the runtime that they have in common."""
