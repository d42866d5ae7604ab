"""A consumer of a broker that damages what it sends."""

from gallery import bootstrap, not_shown, shown
from kafka import KafkaConsumer, KafkaProducer

SENT = b"a" * 200
producer = KafkaProducer(bootstrap_servers=bootstrap)
producer.send("orders", SENT).get(30)
consumer = KafkaConsumer(
    "orders",
    bootstrap_servers=bootstrap,
    auto_offset_reset="earliest",
    check_crcs=True,
    consumer_timeout_ms=5000,
)
try:
    record = next(consumer)
except StopIteration:
    not_shown("nothing is delivered")
except Exception as error:
    not_shown(f"the consumer says so: {type(error).__name__}: {error}")
different = sum(a != b for a, b in zip(record.value, SENT, strict=False))
if record.value != SENT:
    shown(f"a record was delivered of which {different} byte(s) of {len(SENT)} are not what was sent")
not_shown("the record is as it was sent")
