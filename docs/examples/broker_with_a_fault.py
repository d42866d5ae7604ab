"""A producer that meets a leader's error once and retries."""

from confluent_kafka import Producer

from barnabas.testing import start_thread

with start_thread(seeds={"topics": {"orders": 1}}) as broker:
    broker.fault("Produce topic=orders times=1 -> error=NOT_LEADER_OR_FOLLOWER")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("orders", b"first")
    producer.flush()
    print([request.error_codes for request in broker.requests("Produce")])
    print(len(broker.records("orders")))
