"""The messages of a release's kafka-clients beside our schemas: what our codecs lack."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

from compat.kafka.releases import ROOT
from compat.releases.published import fetched

SCHEMAS = ROOT / "schemas" / "api"
_COMMENT = re.compile(r'^\s*//.*$|\s//[^"\n]*$', re.MULTILINE)


def lacking(version: str) -> list[str]:
    """Return the requests and answers of a release, and their versions, that our schemas lack. Raises KafkaError."""
    ours = {
        definition["name"]: definition
        for path in SCHEMAS.glob("*.json")
        if (definition := json.loads(path.read_text()))
    }
    texts = []
    count = 0
    for name, theirs in _published(version):
        count += 1
        mine = ours.get(name)
        if mine is None:
            texts.append(f"{version}: {name} is not there")
        elif _last(mine["validVersions"]) < _last(theirs["validVersions"]):
            texts.append(
                f"{version}: {name} has versions {theirs['validVersions']}, ours {mine['validVersions']}"
            )
        elif theirs["validVersions"] != "none" and mine["flexibleVersions"] != theirs["flexibleVersions"]:
            texts.append(f"{version}: {name} is flexible in {theirs['flexibleVersions']}")
    print(f"{version}: {count} requests and answers, {len(texts)} are lacking", flush=True)
    return texts


def _published(version: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the name and schema of each request and answer."""
    with zipfile.ZipFile(fetched(version) / f"kafka-clients-{version}.jar") as jar:
        for entry in sorted(jar.namelist()):
            if entry.startswith("common/message/") and entry.endswith(".json"):
                schema = json.loads(_COMMENT.sub("", jar.read(entry).decode()))
                if schema["type"] in ("request", "response"):
                    yield schema["name"], schema


def _last(versions: str) -> int:
    return -1 if versions == "none" else int(versions.rpartition("-")[2])
