"""The lake: Iceberg tables, and beside each a ledger of the offsets that its commits cover.

The rule: a file that no commit of the catalog names does not exist.
"""
