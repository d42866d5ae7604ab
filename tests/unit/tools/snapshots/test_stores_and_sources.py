"""URLs and settings of stores, an S3 over loopback, and what may be pushed."""

import socket

import pytest

from barnabas.log.disk import OsDisk
from barnabas.tiered.settings import StoreSettingsError
from barnabas.tiered.storage import RemoteStorageError
from barnabas.tools.snapshots.layout import SnapshotStoreError
from barnabas.tools.snapshots.pruning import delete
from barnabas.tools.snapshots.pulling import pull, verify
from barnabas.tools.snapshots.pushing import push
from barnabas.tools.snapshots.sources import running, stopped
from barnabas.tools.snapshots.store import SnapshotStore
from barnabas.tools.snapshots.urls import open_place, parse_options
from tests.support.snapshot_stores import files_of, log_dir_in, source_of, write_files

pytest.importorskip("obstore", reason="obstore is of the extra `tiered`")


@pytest.fixture(scope="module")
def endpoint():
    server = pytest.importorskip("moto.server", reason="moto is of the group `stores`")
    running_server = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running_server.start()
    url = f"http://127.0.0.1:{running_server.get_host_and_port()[1]}"
    import boto3

    client = boto3.client(
        "s3", "us-east-1", endpoint_url=url, aws_access_key_id="key", aws_secret_access_key="secret"
    )
    client.create_bucket(Bucket="snapshots")
    yield url
    running_server.stop()


VARIABLES = {"BARNABAS_STORE_AWS_ACCESS_KEY_ID": "key", "BARNABAS_STORE_AWS_SECRET_ACCESS_KEY": "secret"}


def opened(endpoint, bucket="snapshots", **options):
    variables = VARIABLES | {"AWS_ENDPOINT_URL": endpoint}
    return SnapshotStore(open_place(f"s3://{bucket}/team a/dev", options, variables))


def test_snapshot_in_s3_is_pulled_as_it_was_pushed(endpoint, tmp_path) -> None:
    content = log_dir_in(tmp_path / "data", size=9 << 20)
    store = opened(endpoint)
    first = push(store, source_of(tmp_path / "data"), "first", tags=["good"])
    write_files(tmp_path / "data", {"orders-1/00000000000000000000.log": b"changed"})
    second = push(store, source_of(tmp_path / "data"), "second")
    assert first.sent_blobs == first.blobs
    assert second.sent_blobs == 1
    reader = opened(endpoint)
    manifest = reader.manifest(reader.resolve("good").manifest)
    assert verify(reader, manifest) == []
    pull(reader, manifest, str(tmp_path / "copy"))
    assert files_of(tmp_path / "copy") == content
    assert delete(reader, ["first"]).snapshots == ["first"]
    assert [record.name for record in reader.records()] == ["second"]
    delete(reader, ["second"])
    assert [list(reader.keys(folder)) for folder in ("blobs", "manifests", "snapshots", "work")] == [
        [],
        [],
        [],
        [],
    ]


def test_bucket_that_is_not_there_is_an_error(endpoint, tmp_path) -> None:
    log_dir_in(tmp_path / "data")
    with pytest.raises(RemoteStorageError, match="no such object, or its bucket"):
        push(opened(endpoint, "another"), source_of(tmp_path / "data"), "first")


def test_service_that_is_silent_is_an_error_in_time(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {"s3.api.call.timeout": "400", "storage.s3.api.call.attempt.timeout": "200"}
        store = opened(f"http://127.0.0.1:{silent.getsockname()[1]}", **options)
        with pytest.raises(RemoteStorageError):
            store.records()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("/tmp/dir", "a store is s3://BUCKET/PREFIX"),
        ("http://host/x", "a store is s3://BUCKET/PREFIX"),
        ("s3:///prefix", "a store is s3://BUCKET/PREFIX"),
        ("s3://bucket/a//b", "empty or consists of dots"),
        ("s3://bucket/a/../b", "empty or consists of dots"),
        ("s3://user:word@bucket/a", "has no user"),
        ("s3://bucket/a?region=x", "has no user"),
        ("file://host/dir", "a directory is named as file:///DIR"),
        ("file:///", "a directory is named as file:///DIR"),
    ],
)
def test_url_that_names_no_store_is_refused(url, problem) -> None:
    with pytest.raises(SnapshotStoreError, match=problem) as refused:
        open_place(url, {}, {})
    assert "word" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "options", "variables", "problem"),
    [
        ("s3://b", {}, {}, "storage.s3.region has to be set"),
        ("s3://b", {"s3.regoin": "x"}, {"AWS_REGION": "x"}, "has no setting storage.s3.regoin"),
        ("s3://b", {}, {"BARNABAS_STORE_S3_REGOIN": "x", "AWS_REGION": "x"}, "storage.s3.regoin"),
        ("gs://b", {"gcs.credentials.path": "/none"}, {}, "storage.gcs"),
        ("az://c", {}, {}, "storage.azure.account.name or storage.azure.sas.token has to be set"),
    ],
)
def test_setting_that_is_missing_or_wrong_is_named(url, options, variables, problem) -> None:
    with pytest.raises(StoreSettingsError, match=problem):
        open_place(url, options, variables)


def test_option_comes_before_variables(endpoint) -> None:
    variables = VARIABLES | {
        "BARNABAS_STORE_S3_ENDPOINT_URL": endpoint,
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    }
    for options in ({}, {"rsm.config.storage.s3.endpoint.url": endpoint}):
        assert SnapshotStore(open_place("s3://snapshots/none", options, variables)).records() == []
    variables["BARNABAS_STORE_S3_ENDPOINT_URL"] = "http://127.0.0.1:1"
    assert SnapshotStore(open_place("s3://snapshots/none", options, variables)).records() == []


def test_option_of_a_store_needs_a_value() -> None:
    assert parse_options(["s3.region=a=b"]) == {"s3.region": "a=b"}
    with pytest.raises(SnapshotStoreError, match=r"--store s3\.region: NAME=VALUE expected"):
        parse_options(["s3.region"])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({}, "there is no metadata log"),
        ({"__remote_log_metadata-3/00000000000000000000.log": b"x"}, "of a broker with tiered storage"),
    ],
)
def test_log_dir_that_is_not_all_there_is_refused(tmp_path, content, problem) -> None:
    log_dir_in(tmp_path / "data")
    write_files(tmp_path / "data", content)
    with pytest.raises(SnapshotStoreError, match=problem), stopped([str(tmp_path / "data")]):
        pass


def test_log_dir_in_use_is_refused(tmp_path) -> None:
    log_dir_in(tmp_path / "data")
    lock = OsDisk().lock(str(tmp_path / "data" / ".lock"))
    with (
        pytest.raises(SnapshotStoreError, match=r"a broker uses .*--control"),
        stopped([str(tmp_path / "data")]),
    ):
        pass
    lock.release()


def test_control_api_that_is_not_there_is_named() -> None:
    with pytest.raises(SnapshotStoreError, match="no control API answers"), running("127.0.0.1:1", ""):
        pass
