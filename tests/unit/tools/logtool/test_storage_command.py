"""`barnabas storage`: log dirs that are prepared before a broker starts, with users who can log in."""

import pytest
import trio

from barnabas.cli import main
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
