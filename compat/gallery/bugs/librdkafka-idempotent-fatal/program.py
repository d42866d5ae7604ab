"""An idempotent producer with a connection that breaks."""

from confluent_kafka import KafkaError, KafkaException, Producer
from gallery import bootstrap, not_shown, shown

outcomes, fatal = [], []
producer = Producer(
    {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "batch.num.messages": 1,
        "linger.ms": 0,
        "reconnect.backoff.ms": 1000,
        "reconnect.backoff.max.ms": 1000,
        "error_cb": lambda error: fatal.append(error) if error.fatal() else None,
    }
)


def produce(count):
    for number in range(count):
        producer.produce("orders", b"%d" % number, on_delivery=lambda error, _: outcomes.append(error))


produce(5)
producer.flush(30)
produce(1)
for _ in range(8):  # until the connection has been broken
    producer.poll(0.1)
try:
    produce(4)
    producer.flush(40)
except KafkaException as raised:
    shown(f"{outcomes.count(None)} of 10 records are delivered; {raised.args[0].str()}")
errors = [error for error in (*fatal, *outcomes) if error is not None]
if any(error.fatal() or error.code() == KafkaError._FATAL for error in errors):
    shown(f"{outcomes.count(None)} of 10 records are delivered; {errors[0].str()}")
if errors or len(outcomes) < 10:
    shown(f"{len(outcomes)} outcomes, errors: {errors}")
not_shown("all 10 records are delivered")
