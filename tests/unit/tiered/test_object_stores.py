"""Objects in buckets, by obstore: in memory, and in an S3 of moto over loopback."""

import socket
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from barnabas.tiered.settings import StoreSettingsError
from barnabas.tiered.storage import IndexKind, RemoteObjectNotFoundError, RemoteStorageError
from barnabas.tiered.stores import open_store
from tests.support.remote_segments import PARTITION, local_files, remote_segment
from tests.support.rsa_keys import key_files

obstore_store = pytest.importorskip("obstore.store", reason="obstore is of the extra `tiered`")

LOG = Random(2).randbytes(14 << 20)
SEGMENT = remote_segment(5, 99, size=len(LOG))


@pytest.fixture(scope="module")
def s3_port():
    server = pytest.importorskip("moto.server", reason="moto is of the group `stores`")
    running = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    yield running.get_host_and_port()[1]
    running.stop()


@pytest.fixture(scope="module")
def gcs_url(s3_port):
    """The same S3 for requests of GCS's XML API, which has the same paths: with the header Authorization of S3."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    bucket(s3_port)
    s3 = DomainDispatcherApplication(create_backend_app)

    def answer(environ, start_response):
        assert environ.get("HTTP_AUTHORIZATION", "Bearer").strip() == "Bearer"
        environ["HTTP_AUTHORIZATION"] = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request"
        return s3(environ, start_response)

    server = make_server("127.0.0.1", 0, answer, threaded=True)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.port}"
    server.shutdown()
    thread.join()
    server.server_close()


def bucket(s3_port) -> None:
    import boto3

    client = boto3.client("s3", "us-east-1", endpoint_url=f"http://127.0.0.1:{s3_port}", aws_access_key_id="key",
                          aws_secret_access_key="secret")  # fmt: skip
    client.create_bucket(Bucket="tier")


@pytest.fixture
def settings(s3_port):
    bucket(s3_port)
    return {
        "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        "storage.s3.bucket.name": "tier",
        "storage.s3.region": "us-east-1",
        "storage.s3.endpoint.url": f"http://127.0.0.1:{s3_port}",
        "storage.s3.path.style.access.enabled": "true",
        "storage.aws.access.key.id": "key",
        "storage.aws.secret.access.key": "secret",
        "chunk.size": str(4 << 20),
        "key.prefix": "tiered/",
    }


def copy_read_and_delete(settings: dict[str, str], directory: Path) -> None:
    """Copy a segment, read it through another store with the same settings, and delete it."""
    store = open_store("aiven", settings)
    files = local_files(directory, LOG)
    segment = replace(SEGMENT, custom_metadata=store.copy(SEGMENT, files))
    reader = open_store("aiven", settings)
    for start, length in ((0, 10), ((4 << 20) - 1, 2), (0, len(LOG)), (len(LOG) - 3, 50)):
        assert reader.read(segment, start, length) == LOG[start : start + length]
    assert reader.read_index(segment, IndexKind.TIMESTAMP) == files.time_index.read_bytes()
    assert list(reader.partitions()) == [PARTITION]
    assert len(list(reader.objects(PARTITION))) == 3
    reader.delete(segment)
    reader.delete(segment)
    assert list(reader.objects(PARTITION)) == []
    with pytest.raises(RemoteObjectNotFoundError):
        open_store("aiven", settings).read(segment, 0, 1)


@pytest.mark.parametrize("is_transformed", [False, True])
def test_segment_in_s3_is_read_as_it_was_copied(settings, tmp_path, is_transformed) -> None:
    if is_transformed:
        public, private = key_files(tmp_path)
        settings |= {
            "compression.enabled": "true", "encryption.enabled": "true", "encryption.key.pair.id": "a",
            "encryption.key.pairs": "a", "encryption.key.pairs.a.public.key.file": str(public),
            "encryption.key.pairs.a.private.key.file": str(private), "custom.metadata.fields.include": "REMOTE_SIZE",
        }  # fmt: skip
    copy_read_and_delete(settings, tmp_path)


def test_segment_in_gcs_is_read_as_it_was_copied(gcs_url, tmp_path) -> None:
    settings = GCS | {
        "storage.gcs.bucket.name": "tier",
        "storage.gcs.endpoint.url": gcs_url,
        "chunk.size": str(4 << 20),
        "key.prefix": "in gcs/",
    }
    copy_read_and_delete(settings, tmp_path)


def test_credentials_file_is_read_again(settings, tmp_path) -> None:
    from barnabas.tiered.aiven.bucket_settings import CredentialsFile

    path = tmp_path / "credentials.properties"
    path.write_text("rsm.config.storage.aws.access.key.id=key\naws.secret.access.key = secret\n")
    for name in ("id", "secret.access.key"):
        settings.pop(f"storage.aws.access.key.{name}", None)
    settings.pop("storage.aws.secret.access.key")
    store = open_store("aiven", settings | {"storage.aws.credentials.file": str(path)})
    store.copy(SEGMENT, local_files(tmp_path, LOG))
    store.delete(SEGMENT)
    provider = CredentialsFile(path)
    path.write_text("aws.access.key.id=other\naws.secret.access.key=secret\naws.session.token=token\n")
    renewed = provider()
    assert (renewed["access_key_id"], renewed["token"]) == ("other", "token")
    assert renewed["expires_at"] > datetime.now(UTC)
    path.write_text("")
    with pytest.raises(StoreSettingsError, match=r"lacks aws\.access\.key\.id"):
        provider()


def test_service_that_does_not_answer_is_an_error_in_time(settings, tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = open_store(
            "aiven",
            settings
            | {
                "storage.s3.endpoint.url": f"http://127.0.0.1:{silent.getsockname()[1]}",
                "storage.s3.api.call.timeout": "500",
                "storage.s3.api.call.attempt.timeout": "200",
            },
        )
        with pytest.raises(RemoteStorageError, match="rsm-manifest") as refused:
            store.read(SEGMENT, 0, 10)
        assert not isinstance(refused.value, RemoteObjectNotFoundError)


def test_bucket_that_does_not_exist_is_no_lost_write(settings, tmp_path) -> None:
    store = open_store("aiven", settings | {"storage.s3.bucket.name": "another"})
    with pytest.raises(RemoteStorageError) as refused:
        store.copy(replace(SEGMENT, size=3), local_files(tmp_path, b"log"))
    assert not isinstance(refused.value, RemoteObjectNotFoundError)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"storage.s3.region": ""}, "storage.s3.region has to be set"),
        ({"storage.aws.secret.access.key": "", "storage.s3.multipart.upload.part.size": "1"}, "from 5242880"),
        ({"storage.aws.credentials.file": "f"}, "a key pair, a file or a provider class, not several"),
        ({"storage.proxy.host": "h"}, "aiven has no setting storage.proxy.host"),
    ],
)
def test_bucket_setting_that_cannot_be_honoured_is_refused(settings, changes, problem) -> None:
    with pytest.raises(StoreSettingsError) as refused:
        open_store("aiven", settings | changes)
    assert problem in str(refused.value)


AZURE = {
    "storage.backend.class": "azure", "chunk.size": "1", "storage.azure.container.name": "c",
    "storage.azure.account.name": "a", "storage.azure.account.key": "a2V5",
    "storage.azure.endpoint.url": "http://127.0.0.1:1/a", "storage.azure.upload.block.size": "1048576",
}  # fmt: skip
GCS = {
    "storage.backend.class": "gcs", "chunk.size": "1", "storage.gcs.bucket.name": "b",
    "storage.gcs.endpoint.url": "http://127.0.0.1:1", "storage.gcs.credentials.default": "false",
}  # fmt: skip


@pytest.mark.parametrize("settings", [AZURE, GCS], ids=["azure", "gcs"])
def test_other_services_are_opened_without_a_request(settings) -> None:
    open_store("aiven", settings).close()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (AZURE | {"storage.azure.connection.string": "AccountName=a"}, "cannot be set together"),
        ({**AZURE, "storage.azure.account.name": ""}, "account.name or storage.azure.sas.token"),
        (GCS | {"storage.gcs.credentials.path": "p"}, "one at most is set"),
        (GCS | {"storage.proxy.host": "h"}, "has no setting storage.proxy.host"),
    ],
)
def test_settings_of_other_services_are_judged(settings, problem) -> None:
    with pytest.raises(StoreSettingsError) as refused:
        open_store("aiven", settings)
    assert problem in str(refused.value)


class LosingProxy:
    """Forwards connections to a port; of every third one the first answer is lost, after the request was done."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.lost = 0
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        """End all connections and threads."""
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in self._sockets:
            end.close()

    def _start(self, run, *arguments) -> None:
        self._threads.append(Thread(target=run, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        for number in count():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, server]
            self._start(self._forward, client, server, False)
            self._start(self._forward, server, client, number % 3 == 0)

    def _forward(self, source: socket.socket, sink: socket.socket, is_lost: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if is_lost:
                    self.lost += 1
                    break
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def test_lost_answers_lose_nothing(settings, s3_port, tmp_path) -> None:
    proxy = LosingProxy(s3_port)
    files = local_files(tmp_path, LOG)

    def store():
        """A store with connections of its own."""
        return open_store("aiven", settings | {"storage.s3.endpoint.url": f"http://127.0.0.1:{proxy.port}"})

    def done(call, *then) -> object:
        """The result of a call that is made again when it fails, as a broker does."""
        for _ in range(10):
            with suppress(RemoteStorageError):
                return call()
            for step in then:
                done(step)
        raise AssertionError("ten failures in a row")

    done(lambda: store().copy(SEGMENT, files), lambda: store().delete(SEGMENT))
    assert done(lambda: store().read(SEGMENT, 0, len(LOG))) == LOG
    done(lambda: store().delete(SEGMENT))
    assert list(open_store("aiven", settings).objects(PARTITION)) == []
    assert proxy.lost >= 2
    proxy.close()
