"""Net effect of a row of manifests, for somebody who follows the lake from outside.

The rule: a file that one manifest adds and a later one removes was never there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from barnabas_pipeline.lake.manifest import DataFile, Manifest, digest


@dataclass(slots=True)
class Changes:
    """The manifests after version `last`, taken in one by one."""

    last: int
    first: int = 0
    digest: str = ""
    cluster_id: str = ""
    topic: str = ""
    schema: dict[str, Any] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)
    offsets: dict[str, dict[str, list[int]]] = field(
        default_factory=dict
    )  # topic id -> partition -> [start, end)
    add: dict[str, DataFile] = field(default_factory=dict)
    remove: list[str] = field(default_factory=list)

    def take(self, manifest: Manifest, data: bytes) -> None:
        """Take in the next manifest."""
        self.first = self.first or manifest.version
        self.last, self.digest = manifest.version, digest(data)
        self.cluster_id, self.topic, self.schema = manifest.cluster_id, manifest.topic, manifest.schema
        if manifest.kind not in self.kinds:
            self.kinds.append(manifest.kind)
        covered = self.offsets.setdefault(manifest.topic_id, {})
        for partition, commit in manifest.partitions.items():
            covered.setdefault(partition, [commit.start, commit.end])[1] = commit.end
        for path in manifest.remove:
            if self.add.pop(path, None) is None:
                self.remove.append(path)
        for file in manifest.add:
            self.add[file.path] = file

    def summary(self) -> dict[str, str]:
        """As the properties of an Iceberg snapshot."""
        return {
            "barnabas.manifest-first": str(self.first),
            "barnabas.manifest-last": str(self.last),
            "barnabas.manifest-sha256": self.digest,
            "barnabas.kinds": ",".join(self.kinds),
            "barnabas.cluster.metadata-id": self.cluster_id,
            "barnabas.topic": self.topic,
            "barnabas.offsets": json.dumps(self.offsets, sort_keys=True),
        }
