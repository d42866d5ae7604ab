#!/bin/bash
# confluent-kafka 2.16.1 (librdkafka 2.16.1): futures of an AdminClient that nothing refers to any more fail with _DESTROY.
# Seen: `AdminClient(settings).create_topics(...)["topic"].result()`, written in one expression, fails before anything is sent; with a
# client that is kept in a variable the request is sent. The futures do not hold their client, though they are all that a caller needs.
# Judge: the mock cluster within librdkafka, which takes connections and does not serve CreateTopics: what is sent there times out.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q --disable-pip-version-check install confluent-kafka==2.16.1

"$dir/venv/bin/python" - >"$dir/seen" <<'PY'
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

settings = {"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 4}


def outcome(futures):
    try:
        futures["topic"].result(20)
    except KafkaException as error:
        return error.args[0].name()


admin = AdminClient(settings)
print("client kept:   ", outcome(admin.create_topics([NewTopic("topic", 1, 1)], request_timeout=2)))
print("client dropped:", outcome(AdminClient(settings).create_topics([NewTopic("topic", 1, 1)], request_timeout=2)))
PY

diff - "$dir/seen" <<'SEEN'
client kept:    _TIMED_OUT
client dropped: _DESTROY
SEEN
