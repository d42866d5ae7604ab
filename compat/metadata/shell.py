"""The image of a snapshot as `kafka-metadata-shell` shows it, and ours in the same form.

The rule: the shell's output is only taken apart; every text of it is built from our image and compared letter by letter.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from barnabas.cluster.kraft.image import QuorumImage
from barnabas.cluster.kraft.values import Acl, Endpoint, LevelRange, Partition
from barnabas.log.format.properties import encode_uuid
from barnabas.security.acls import PatternType, Permission
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.security.scram import BY_TYPE
from compat.kafka.releases import ROOT, maven

Tree = dict[str, str]
"""Paths and texts of the leaves."""
HERE = Path(__file__).parent
SHELL = "org.apache.kafka.shell.MetadataShell"
SHELL_TIMEOUT_S = 120
ATTEMPTS = 10
NOT_LOADED = "Optional.empty"
"""The metadata.version of an empty image: on a busy machine the shell prints its tree before it has loaded the snapshot."""
RESOURCES = {2: "TOPIC", 4: "BROKER", 16: "CLIENT_METRICS", 32: "GROUP"}
LEVELS = {25: "4.0-IV3", 27: "4.1-IV1", 29: "4.2-IV1", 30: "4.3-IV0", 33: "4.4-IV2"}
"""Names of the levels of metadata.version that releases format with."""
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NOT_COMPARED = ("provenance", "topics/byName")
"""The first is of the snapshot's own offsets; the second has the same partitions as byId."""


def can_read(version: str, image: QuorumImage) -> bool:
    """Return whether the shell of a release knows the metadata.version of an image; it shows nothing of others."""
    return LEVELS[image.metadata_version] <= version


def shell_tree(version: str, snapshot: Path) -> Tree:
    """Leaves of the tree that the shell of a release prints for a snapshot."""
    jars = ROOT / ".tools" / "metadata-shell" / version
    if not (jars / "done").exists():
        jars.mkdir(parents=True, exist_ok=True)
        maven(HERE / "shell.xml", jars, f"-Dkafka.version={version}")
        (jars / "done").touch()
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", SHELL]
    tree: Tree = {}
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            [*command, "--snapshot", str(snapshot), "tree", "image"],
            capture_output=True, text=True, timeout=SHELL_TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode or not done.stdout:
            raise RuntimeError(f"kafka-metadata-shell failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        tree = parse_tree(done.stdout)
        if tree.get("features/metadataVersion") != NOT_LOADED:
            break
    return tree


def parse_tree(text: str) -> Tree:
    """The same, from what the shell has printed: two blanks for each level, a colon after a name."""
    tree: Tree = {}
    path: list[str] = []
    for line in text.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        del path[depth:]
        word = line.strip()
        if word.endswith(":"):
            path.append(word[:-1])
        else:
            tree["/".join(path)] = word
    return {name: word for name, word in tree.items() if not name.startswith(NOT_COMPARED)}


def image_tree(image: QuorumImage) -> Tree:
    """Our image as the shell would show it, but for quotas of defaults, which it cannot show (see README.md)."""
    return dict(_leaves(image))


def _leaves(image: QuorumImage) -> Iterator[tuple[str, str]]:
    for acl_id, acl in image.acls.items():
        yield f"acls/byId/{encode_uuid(acl_id)}", _acl(acl)
    for entity, limits in image.quotas.items():
        if all(part is not None for _, part in entity):
            shown = "_".join(f"{kind}({part})" for kind, part in entity)
            yield from ((f"clientQuotas/{shown}/{name}", str(value)) for name, value in limits.items())
    yield from _nodes(image)
    for (kind, name), own in image.settings.items():
        resource = f"{RESOURCES[kind]}:{name}" if name else RESOURCES[kind]
        yield from ((f"configs/{resource}/{key}", value) for key, value in own.items())
    for token in image.tokens.values():
        yield (
            f"delegationToken/{token.token_id}",
            f"DelegationTokenDatatokenId={token.token_id}(owner={token.owner}(tokenRequester={token.requester}"
            f"(renewers={' '.join(token.renewers)}, issueTimestamp={token.issued_ms}, "
            f"maxTimestamp={token.expires_max_ms}), expiryTimestamp={token.expires_ms}",
        )
    for name, level in image.features.items():
        if name == "metadata.version":
            yield "features/metadataVersion", f"Optional[{LEVELS[level]}]"
        else:
            yield f"features/finalized_{name}", str(level)
    yield "producerIds/nextProducerId", str(-1 if image.producer_ids is None else image.producer_ids)
    for (user, mechanism), kept in image.users.items():
        yield (
            f"scram/{BY_TYPE[mechanism].name}/{user}",
            f"ScramCredentialData(salt={kept.salt.hex()}, storedKey={kept.stored_key.hex()}, "
            f"serverKey={kept.server_key.hex()}, iterations={kept.iterations})",
        )
    for topic in image.topics.values():
        path = f"topics/byId/{encode_uuid(topic.id)}"
        yield from ((f"{path}/{index}", _partition(part)) for index, part in image.partitions_of(topic))
        yield f"{path}/id", encode_uuid(topic.id)
        yield f"{path}/name", topic.name


def _nodes(image: QuorumImage) -> Iterator[tuple[str, str]]:
    for broker in image.brokers.values():
        rack = "Optional.empty" if broker.rack is None else f"Optional[{broker.rack}]"
        cordoned = "null" if broker.cordoned_log_dirs is None else _ids(broker.cordoned_log_dirs)
        yield (
            f"cluster/brokers/{broker.id}",
            f"BrokerRegistration(id={broker.id}, epoch={broker.epoch}, incarnationId={encode_uuid(broker.incarnation_id)}, "
            f"listeners=[{_endpoints(broker.endpoints)}], supportedFeatures={{{_features(broker.features)}}}, "
            f"rack={rack}, fenced={_flag(broker.fenced)}, inControlledShutdown={_flag(broker.in_controlled_shutdown)}, "
            f"isMigratingZkBroker={_flag(broker.is_migrating_zk_broker)}, directories={_ids(broker.log_dirs)}, "
            f"cordonedDirectories={cordoned})",
        )
    for controller in image.controllers.values():
        yield (
            f"cluster/controllers/{controller.id}",
            f"ControllerRegistration(id={controller.id}, incarnationId={encode_uuid(controller.incarnation_id)}, "
            f"zkMigrationReady={_flag(controller.zk_migration_ready)}, listeners=[{_endpoints(controller.endpoints)}], "
            f"supportedFeatures={{{_features(controller.features)}}})",
        )


def _acl(acl: Acl) -> str:
    return (
        f"StandardAcl[resourceType={ResourceType(acl.resource_type).name}, resourceName={acl.resource_name}, "
        f"patternType={PatternType(acl.pattern_type).name}, principal={acl.principal}, host={acl.host}, "
        f"operation={Operation(acl.operation).name}, permissionType={Permission(acl.permission).name}]"
    )


def _partition(partition: Partition) -> str:
    return (
        f"PartitionRegistration(replicas={list(partition.replicas)}, directories={_ids(partition.directories)}, "
        f"isr={list(partition.isr)}, removingReplicas={list(partition.removing)}, "
        f"addingReplicas={list(partition.adding)}, elr={list(partition.elr)}, "
        f"lastKnownElr={list(partition.last_known_elr)}, leader={partition.leader}, "
        f"leaderRecoveryState={'RECOVERING' if partition.leader_recovery_state else 'RECOVERED'}, "
        f"leaderEpoch={partition.leader_epoch}, partitionEpoch={partition.partition_epoch})"
    )


def _endpoints(endpoints: Iterable[Endpoint]) -> str:
    return ", ".join(
        f"Endpoint(listenerName='{endpoint.name}', securityProtocol={PROTOCOLS[endpoint.security_protocol]}, "
        f"host='{endpoint.host}', port={endpoint.port})"
        for endpoint in sorted(endpoints)
    )


def _features(features: Iterable[tuple[str, LevelRange]]) -> str:
    return ", ".join(f"{name}: {levels.lowest}-{levels.highest}" for name, levels in features)


def _ids(directories: Iterable[bytes]) -> str:
    return f"[{', '.join(map(encode_uuid, directories))}]"


def _flag(value: bool) -> str:
    return str(value).lower()
