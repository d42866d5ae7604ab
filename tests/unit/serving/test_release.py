"""A release profile decides what a broker serves and writes."""

from barnabas.broker.assembly import assembled
from barnabas.config.features import Feature, RecordVersions
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import real_environment
from barnabas.serving.release import KAFKA_4


async def test_coordinators_write_the_versions_of_the_profile(tmp_path):
    config = BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    old = KAFKA_4._replace(
        features=(Feature("transaction.version", 0, 2, 0),),
        record_versions=RecordVersions(group_metadata=1, offset_commit=1),
    )
    for release, group, transaction in ((old, 1, 0), (KAFKA_4, 3, 1)):
        async with assembled(config, real_environment(), release=release) as broker:
            services = broker.services
            assert services.group_coordinator.settings.record_versions.group_metadata == group
            assert services.transaction_coordinator.settings.record_version() == transaction
