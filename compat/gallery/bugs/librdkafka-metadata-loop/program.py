"""A producer that meets one passing error; its Metadata requests are counted."""

import time

from confluent_kafka import Producer
from gallery import bootstrap, not_shown, requests, shown

producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
for value in (b"first", b"second", b"third"):
    producer.produce("orders", value)
    producer.flush(30)
time.sleep(2)
before = len(requests("Metadata"))
time.sleep(5)
after = len(requests("Metadata"))
count = after - before
text = f"{before} Metadata requests until 2 s after the error, {count} more in the next 5 s, of a client that does nothing"
(shown if count > 3 else not_shown)(text)
