"""Files for a broker with security, in one directory: certificates, users with passwords, ACLs, and its settings.

The rule: files are created once; later starts use the existing ones, with changes made meanwhile.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.cluster.kraft.feature_levels import LEVEL, formatting_records
from barnabas.cluster.kraft.formatting import BOOTSTRAP, bootstrap_file
from barnabas.environment.clocks import wall_clock_ms
from barnabas.environment.real import OsEntropy
from barnabas.errors import StorageError
from barnabas.log.disk import OsDisk
from barnabas.log.logdir import read_meta
from barnabas.log.ownership import Ownership
from barnabas.network.certificates import AUTHORITY, make_all, write_private
from barnabas.security.acls import PatternType, Permission
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.security.scram import SCRAM_SHA_512, credential
from barnabas.wire.generated.metadata_records.access_control_entry import AccessControlEntryRecord
from barnabas.wire.generated.metadata_records.user_scram_credential import UserScramCredentialRecord
from barnabas.wire.ids import new_uuid, uuid_text

ADMIN, WRITER, READER = "admin", "alice", "bob"
USERS = (ADMIN, WRITER, READER)
SERVER = "broker"
PREFIX = "demo"
"""The writer may write to topics that begin so, the reader may read them in groups that begin so."""
NODE_ID = 1
SALT_BYTES = 24

_ALLOWED = (
    (WRITER, ResourceType.TOPIC, (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)),
    (READER, ResourceType.TOPIC, (Operation.READ, Operation.DESCRIBE)),
    (READER, ResourceType.GROUP, (Operation.READ, Operation.DESCRIBE)),
)


class Demo(NamedTuple):
    """Results of the preparation: the directory, the users' passwords, and the broker's settings."""

    directory: Path
    passwords: Mapping[str, str]
    settings: Mapping[str, str]

    @property
    def authority(self) -> Path:
        """The certificate that clients must trust."""
        return self.directory / "tls" / f"{AUTHORITY}.crt"

    def key_store(self, user: str) -> Path:
        """A user's key and certificate in one file."""
        return self.directory / "tls" / f"{user}.pem"


def prepare(directory: Path) -> Demo:
    """Make the missing files in a directory. Raises OSError; StorageError for a data directory that a broker uses."""
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    make_all(directory / "tls", SERVER, USERS)
    passwords = _passwords(directory / "users.json")
    data = directory / "data"
    if read_meta(OsDisk(), str(data)) is None:
        _prepare_data(str(data), passwords)
    return Demo(directory, passwords, _settings(directory))


def _passwords(path: Path) -> dict[str, str]:
    try:
        passwords: dict[str, str] = json.loads(path.read_text())
    except FileNotFoundError:
        passwords = {user: f"{user}-{secrets.token_hex(8)}" for user in USERS}
        write_private(path, json.dumps(passwords, indent=2).encode() + b"\n")
    return passwords


def _settings(directory: Path) -> dict[str, str]:
    tls = directory / "tls"
    return {
        "listeners": "SASL_SSL://localhost:9092,SSL://localhost:9093",
        "log.dirs": str(directory / "data"),
        "sasl.enabled.mechanisms": SCRAM_SHA_512.name,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tls / f"{SERVER}.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tls / f"{AUTHORITY}.crt"),
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:{SERVER}",
        "security.inter.broker.protocol": "SSL",  # by which the broker's own registry connects, with its certificate
        "delegation.token.secret.key": _token_key(directory / "token.key"),
    }


def _token_key(path: Path) -> str:
    if not path.exists():
        write_private(path, secrets.token_hex(32).encode())
    return path.read_text()


def _prepare_data(data: str, passwords: Mapping[str, str]) -> None:
    ownership = Ownership(OsDisk(), None)
    cluster_id = uuid_text(new_uuid(OsEntropy()))
    try:
        try:
            ownership.take(data)
        except OSError as error:
            raise StorageError(data, error) from error
        content = bootstrap_file(_records(passwords), wall_clock_ms())
        try:
            OsDisk().make_private(f"{data}/{BOOTSTRAP}")
            OsDisk().replace(f"{data}/{BOOTSTRAP}", content, sync=True)
        except OSError as error:
            raise StorageError(data, error) from error
        ownership.write([data], cluster_id, NODE_ID)
    finally:
        ownership.release()


def _records(passwords: Mapping[str, str]) -> Iterator[Any]:
    """Yield the records with which the metadata log begins: features, users, ACLs."""
    yield from formatting_records(LEVEL)
    for user, password in passwords.items():
        salt = OsEntropy().token_bytes(SALT_BYTES)
        kept = credential(SCRAM_SHA_512, password, salt, SCRAM_SHA_512.iterations_min)
        yield UserScramCredentialRecord(
            user, SCRAM_SHA_512.type, kept.salt, kept.stored_key, kept.server_key, kept.iterations
        )
    for user, kind, operations in _ALLOWED:
        for operation in operations:
            yield AccessControlEntryRecord(
                new_uuid(OsEntropy()),
                int(kind),
                PREFIX,
                int(PatternType.PREFIXED),
                f"User:{user}",
                "*",
                int(operation),
                int(Permission.ALLOW),
            )
