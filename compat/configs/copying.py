"""Topics of Barnabas, copied to Apache Kafka by a stock client with all described settings, as tools copy them.

    python -m compat.configs.copying [--version 4.x]

The exit code is 1 if Kafka rejects a topic, or describes other values than Barnabas. Kafka must reject a topic with a
setting of Barnabas alone, with the setting's name in the error message.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from barnabas.config import topic as topic_settings
from compat.kafka import KafkaError as StartsNotError
from compat.kit.sides import Side, StartError, both

TIMEOUT_S = 30
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "tuned": {"retention.ms": "5000", "cleanup.policy": "compact,delete", "compression.type": "zstd"},
    **{f"own-{name}": {name: "header"} for name in topic_settings.OWN},
}


def _make(admin: AdminClient, name: str, settings: Mapping[str, str]) -> str:
    """Create a topic; returns the error message, empty for none."""
    try:
        admin.create_topics([NewTopic(name, 1, 1, config=dict(settings))])[name].result(TIMEOUT_S)
    except KafkaException as error:
        return str(error.args[0].str())
    return ""


def _shown(admin: AdminClient, name: str) -> dict[str, str | None]:
    """Return the settings of a topic, once the broker has its metadata."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    give_up = time.monotonic() + TIMEOUT_S
    while True:
        try:
            described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > give_up:
                raise
            time.sleep(0.1)
        else:
            return {key: entry.value for key, entry in described.items()}


def problems(kafka: Side, ours: Side) -> list[str]:
    """Copy topics and compare them; returns the problems."""
    theirs, mine = (AdminClient({"bootstrap.servers": f"127.0.0.1:{side.port}"}) for side in (kafka, ours))
    texts = []
    for name, settings in TOPICS.items():
        if refused := _make(mine, name, settings):
            texts.append(f"{name} cannot be made: {refused}")
            continue
        shown = _shown(mine, name)
        own = settings.keys() & topic_settings.OWN
        if shown.keys() & topic_settings.OWN != own:
            texts.append(f"{name} shows {sorted(shown.keys() & topic_settings.OWN)}")
        refused = _make(theirs, name, {key: value for key, value in shown.items() if value is not None})
        if own:
            if not all(key in refused for key in own):
                texts.append(f"{name}, which has {sorted(own)}, is copied: {refused!r}")
            continue
        if refused:
            texts.append(f"{name} is refused: {refused}")
            continue
        copied = _shown(theirs, name)
        texts += [
            f"{name} has {key}={shown.get(key, 'nothing')}, its copy {copied.get(key, 'nothing')}"
            for key in sorted(shown.keys() | copied.keys())
            if shown.get(key, "nothing") != copied.get(key, "nothing")
        ]
    return texts


def main() -> int:
    """Copy; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.configs.copying", description=__doc__)
    parser.add_argument("--version", default="4.x", help="which Kafka (default: the newest here)")
    try:
        with both(version=parser.parse_args().version) as (kafka, ours):
            texts = problems(kafka, ours)
    except (StartsNotError, StartError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for problem in texts:
        print(f"differs: {problem}")
    print(f"{len(TOPICS)} topics copied, {len(texts)} differences")
    return 1 if texts else 0


if __name__ == "__main__":
    sys.exit(main())
