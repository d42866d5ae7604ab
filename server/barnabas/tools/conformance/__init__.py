"""`barnabas conform`: the wire suite, against any broker, from outside.

The rule: a case states in one sentence what Apache Kafka does, and its source; it applies to a broker that
advertises the APIs that it needs. All objects of a case have the run's own prefix, and are removed.
"""
