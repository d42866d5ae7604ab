"""`barnabas storage`: log dirs that are prepared before a broker starts, with users that can log in."""

import pytest
import trio

from barnabas.cli import main
from barnabas.cluster.kraft.decisions import SnapshotId
from barnabas.cluster.kraft.formatting import FIRST_VOTERS, level_of, read_bootstrap
from barnabas.cluster.kraft.state import snapshot_steps
from barnabas.log.disk import OsDisk
from barnabas.log.logdir import read_meta
from barnabas.records.batch import iter_batches
from barnabas.security import scram
from tests.support.broker import broker_to_ask

ALICE = "SCRAM-SHA-256=[name=alice,password=hunter2]"


def storage(*arguments):
    return main(["storage", *map(str, arguments)])


def test_random_uuid_prints_a_cluster_id(capsys):
    assert storage("random-uuid") == 0
    assert len(capsys.readouterr().out.strip()) == 22


async def test_users_of_a_formatted_dir_are_there_at_the_first_start(tmp_path, capsys):
    cluster_id = "MkU3OEVBNTcwNTJENDM2Qk"  # of Kafka's documentation: its last letter has bits to spare
    logs = tmp_path / "logs"
    options = "format", "--data", logs, "-t", cluster_id, "--add-scram", ALICE
    more = "-S", "SCRAM-SHA-512=[name=bob,iterations=8192,password=hunter3]"
    assert await run_in_thread(*options, *more) == 0
    assert await run_in_thread("info", "--data", logs) == 0
    output = capsys.readouterr()
    assert f"node 1 of cluster {cluster_id}" in output.out
    assert "user alice: SCRAM-SHA-256 (4096 iterations)" in output.out
    assert "hunter" not in output.out + output.err
    async with broker_to_ask(tmp_path) as asked:
        image = asked.services.metadata.image
        assert image.cluster_id == cluster_id
        kept = image.scram["alice"]["SCRAM-SHA-256"]
        assert kept == scram.credential(scram.SCRAM_SHA_256, "hunter2", kept.salt, 4096)
        assert image.scram["bob"]["SCRAM-SHA-512"].iterations == 8192


async def run_in_thread(*arguments):
    return await trio.to_thread.run_sync(lambda: storage(*arguments))


def test_a_dir_is_formatted_once(tmp_path, capsys):
    assert storage("info", "--data", tmp_path) == 1
    assert storage("format", "--data", tmp_path) == 0
    before = (tmp_path / "meta.properties").read_bytes()
    assert storage("format", "--data", tmp_path) == 1
    assert "is already formatted" in capsys.readouterr().err
    assert storage("format", "--data", tmp_path, "--ignore-formatted") == 0
    assert (tmp_path / "meta.properties").read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        "SCRAM-SHA-1=[name=a,password=hunter2]",
        "SCRAM-SHA-256=name=a,password=hunter2",
        "SCRAM-SHA-256=[password=hunter2]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,password=hunter2,saltedpassword=hunter2]",
        "SCRAM-SHA-256=[name=a,saltedpassword=aHVudGVyMg==]",
        "SCRAM-SHA-256=[name=a,salt=hunter2!,password=hunter2]",
        "SCRAM-SHA-256=[name=a,password=hunter2,iterations=4095]",
        "SCRAM-SHA-256=[name=a,password=hunter2,iterations=16385]",
        "SCRAM-SHA-256=[name=a,password=hunter2,iterations=many]",
        "SCRAM-SHA-256=[name=a,password=hunter2,more=hunter2]",
    ],
)
def test_wrong_credential_is_explained_without_its_password(tmp_path, capsys, text):
    assert storage("format", "--data", tmp_path, "--add-scram", text) == 2
    output = capsys.readouterr()
    assert output.err.startswith("barnabas storage: --add-scram: ")
    assert "hunter2" not in output.out + output.err
    assert not (tmp_path / "meta.properties").exists()


# --- controllers ----------------------------------------------------------------------------------------------------

CONTROLLER = (
    "--set", "process.roles=controller", "--set", "node.id=2", "--set", "controller.listener.names=CONTROLLER",
    "--set", "listeners=CONTROLLER://localhost:9093", "-t", "MkU3OEVBNTcwNTJENDM2Qk",
)  # fmt: skip
DYNAMIC = ("--set", "controller.quorum.bootstrap.servers=localhost:9093")
STATIC = ("--set", "controller.quorum.voters=2@localhost:9093,3@[::1]:9094")
DIRECTORY = "AgICAgICAgICAgICAgICAg"
VOTERS = f"1@[::1]:9093:AQEBAQEBAQEBAQEBAQEBAQ,2@localhost:9093:{DIRECTORY}"


def format_controller(path, *options):
    return storage("format", "--data", path, *CONTROLLER, *options)


def records_of(path):
    return read_bootstrap(OsDisk(), str(path))


def first_voters(path):
    content = (path / FIRST_VOTERS).read_bytes()
    steps = snapshot_steps(SnapshotId(0, 0), str(path), ((header, content[position : position + header.size])
                           for position, header in iter_batches(content)))  # fmt: skip
    return list(steps)[-1].leadership


def test_static_voters_are_formatted_without_a_first_snapshot(tmp_path):
    assert format_controller(tmp_path, *STATIC, "-S", ALICE) == 0
    assert not (tmp_path / FIRST_VOTERS).exists()
    *features, user = records_of(tmp_path)
    assert [(record.name, record.feature_level) for record in features] == [
        ("metadata.version", 33), ("eligible.leader.replicas.version", 1), ("group.version", 1),
        ("share.version", 2), ("streams.version", 1), ("transaction.version", 2),
    ]  # fmt: skip
    assert (user.name, user.mechanism, user.iterations) == ("alice", 1, 4096)


def test_standalone_controller_is_the_only_voter(tmp_path):
    assert format_controller(tmp_path, *DYNAMIC, "--standalone") == 0
    leadership = first_voters(tmp_path)
    assert leadership.kraft_version == 1
    (voter,) = leadership.voters
    assert (voter.id, voter.endpoints) == (2, (("CONTROLLER", "localhost", 9093),))
    assert read_meta(OsDisk(), str(tmp_path)).directory_id == voter.directory_id


def test_initial_controllers_give_the_dir_its_id(tmp_path):
    assert format_controller(tmp_path, *DYNAMIC, "--initial-controllers", VOTERS) == 0
    assert [(voter.id, voter.endpoints[0][1:]) for voter in first_voters(tmp_path).voters] == [
        (1, ("::1", 9093)), (2, ("localhost", 9093)),
    ]  # fmt: skip
    assert f"directory.id={DIRECTORY}" in (tmp_path / "meta.properties").read_text()


def test_release_and_features_are_those_of_the_options(tmp_path):
    options = "--standalone", "--release-version", "4.0", "--feature", "group.version=0"
    assert format_controller(tmp_path, *DYNAMIC, *options) == 0
    levels = {record.name: record.feature_level for record in records_of(tmp_path)}
    assert levels == {"metadata.version": 25, "transaction.version": 2}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (DYNAMIC, "say how its quorum begins"),
        ((*DYNAMIC, "-I", "1@a:1"), "not of the form ID@HOST:PORT:DIRECTORY"),
        ((*DYNAMIC, "-I", f"1@a:1:{DIRECTORY},1@b:1:{DIRECTORY}"), "the same id"),
        ((*DYNAMIC, "-s", "-r", "2.8"), "no release with a metadata.version"),
        ((*DYNAMIC, "-s", "-f", "share.version=9"), "levels of share.version are 0 to 2"),
        ((*DYNAMIC, "-s", "-f", "kraft.version=0"), "it is 1 with --standalone"),
        ((*STATIC, "-f", "kraft.version=1"), "and 0 without"),
        ((*STATIC, "-r", "3.4", "-S", ALICE), "--add-scram needs metadata.version 11"),
        ((*STATIC, "-r", "3.9", "-f", "eligible.leader.replicas.version=1"), "needs metadata.version 23"),
    ],
)
def test_what_does_not_begin_a_quorum_formats_nothing(tmp_path, capsys, options, text):
    assert format_controller(tmp_path / "d", *options) != 0
    assert text in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("release", "level"),
    [("3.3", 7), ("3.3-IV3", 7), ("3.7", 19), ("3.7-IV2", 17), ("4.0.1", 25), ("4.3", 30), ("4.4-IV1", 32)],
)
def test_release_names_its_metadata_version(release, level):
    assert level_of(release) == level
