"""The lake: tables of Parquet files, and a log of manifests that says which of them count.

The rule: what no manifest names does not exist. A manifest is put if absent, once, and never changed.
"""
