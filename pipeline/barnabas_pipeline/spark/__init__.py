"""Parts that touch Spark: the session, and the data source `barnabas`.

The rule: everything that decides something lives elsewhere and can be tested without a JVM.
"""
