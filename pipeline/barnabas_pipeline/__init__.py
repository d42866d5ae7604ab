"""Barnabas' data pipeline on Apache Spark: from topics to an exact lake, and from there to results.

The rule: the broker never imports this package; this package uses the broker's wire codecs, record formats and file
formats, and nothing else of it.
"""
