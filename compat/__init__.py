"""Barnabas seen from outside: stock clients, raw bytes, and Apache Kafka itself as the oracle.

The rule: nothing here imports `barnabas`. What a client cannot see is not tested here.
"""
