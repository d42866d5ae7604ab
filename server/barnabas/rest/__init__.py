"""HTTP for produce, consume and administration: the API of Confluent's REST proxy, v2 and v3, for any Kafka.

The rule: it acts as a client of the cluster, logged in as the user, so the broker enforces ACLs.
"""
