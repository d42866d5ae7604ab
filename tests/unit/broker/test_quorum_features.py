"""Features that a broker of a quorum registers, and what becomes of it where others are finalized."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.startup import StartupError
from barnabas.cluster.kraft.directory import END, MetadataLog
from barnabas.errors import leaves
from barnabas.log.disk import OsDisk
from barnabas.serving.release import IN_QUORUM
from barnabas.testing.simulation.world import World, run_world
from barnabas.wire.generated.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord
from tests.support.pages import ROOT
from tests.support.simulated_controller import member

GOLDEN = sorted((ROOT / "tests" / "golden" / "metadata").glob("kafka-*"))


def run(program, *, starts=True):
    async def main(world: World):
        async with member(world, starts=starts) as machine:
            return await program(machine)

    return run_world(2, main, seconds_max=900)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.name)
def test_registration_has_a_range_for_each_feature_of_a_cluster(golden: Path):
    log = MetadataLog(OsDisk(read_only=True), str(golden))
    for _ in log.steps(END):
        pass
    ranges = {feature.name: (feature.min_level, feature.max_level) for feature in IN_QUORUM.features}
    finalized = dict(log.state.image.features)
    assert finalized
    assert all(ranges[name][0] <= level <= ranges[name][1] for name, level in finalized.items())
    assert set(ranges) >= {
        "metadata.version", "kraft.version", "transaction.version", "group.version",
        "eligible.leader.replicas.version", "share.version", "streams.version",
    }  # fmt: skip


def test_levels_of_kafka_4_4_are_registered():
    async def program(machine):
        (registration,) = machine.controller.all_of(BrokerRegistrationRequest)
        return {feature.name: feature.max_supported_version for feature in registration.features}

    levels = run(program)
    assert levels["share.version"] == 2
    assert levels["metadata.version"] == 33


def test_refusal_names_the_features_at_other_levels():
    async def program(machine):
        machine.controller.write(
            FeatureLevelRecord("share.version", 3), FeatureLevelRecord("streams.version", 1)
        )
        machine.controller.answers[BrokerRegistrationRequest] = lambda _: BrokerRegistrationResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION
        )
        await machine.machine.start()

    with pytest.RaisesGroup(
        pytest.RaisesExc(StartupError), flatten_subgroups=True, allow_unwrapped=True
    ) as raised:
        run(program, starts=False)
    text = " ".join(str(error) for error in leaves(raised.value))
    assert "share.version is finalized at level 3, this broker supports 0 to 2" in text
    assert "streams.version" not in text
