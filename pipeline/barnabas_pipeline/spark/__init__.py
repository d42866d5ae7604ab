"""Parts that touch Spark: the session, and the data source `barnabas`.

The rule: all decisions are made in other packages, which can be tested without a JVM.
"""
