"""HTTP for produce, consume and administration: the REST API of Confluent's REST proxy, v2 and v3, of any Kafka.

The rule: it is a client of the cluster, as each user is one: what ACLs do not allow is refused by the broker.
"""
