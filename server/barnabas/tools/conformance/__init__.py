"""`barnabas conform`: the wire suite, against any broker, from outside.

The rule: a case says in one sentence what Apache Kafka does, and where that is written; it holds for a broker that
advertises what it needs. What a case makes has the run's own prefix, and is removed.
"""
