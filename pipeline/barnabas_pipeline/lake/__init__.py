"""The lake: Iceberg tables, and beside each a ledger that says which offsets of the log its commits cover.

The rule: what the catalog's commit does not name does not exist.
"""
