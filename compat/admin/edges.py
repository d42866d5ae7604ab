"""The first requests of clients: supported APIs and features, and lookups of coordinators."""

from __future__ import annotations

from collections.abc import Iterator

from compat.kit.compare import Step
from compat.kit.wire import Values

SOFTWARE: Values = {"ClientSoftwareName": "kit", "ClientSoftwareVersion": "1"}
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def _versions() -> Iterator[Step]:
    for version in range(6):
        yield Step(f"versions v{version}", "ApiVersions", version, SOFTWARE if version >= 3 else {})


def _coordinators() -> Iterator[Step]:
    yield Step("coordinator v0: begun", "FindCoordinator", 0, {"Key": "group"})
    for version in range(7):
        keys = [("group", 0), ("no key", 0), ("transaction", 1), ("nonsense", 9), ("negative", -1)]
        if version >= 6:
            keys += [("g:AAAAAAAAAAAAAAAAAAAAAQ:0", 2), ("share without a partition", 2)]
        for key, kind in keys if version else keys[:2]:
            name = "" if key == "no key" else key
            values: Values = {"Key": name} if version < 4 else {"CoordinatorKeys": [name]}
            if version:
                values["KeyType"] = kind
            yield Step(f"coordinator v{version}: {key}", "FindCoordinator", version, values)
    for version in (4, 6):
        for label, names in (("none", []), ("several", ["a", "", "b"]), ("twice", ["a", "a"])):
            values = {"CoordinatorKeys": names, "KeyType": 0}
            yield Step(f"coordinator v{version}: {label}", "FindCoordinator", version, values)


def _features() -> Iterator[Step]:
    tries: dict[str, list[tuple[str, int, int]]] = {
        "none": [],
        "unknown": [("no.such", 1, UPGRADE)],
        "unknown, removed": [("no.such", 0, SAFE_DOWNGRADE)],
        "no name": [("", 1, UPGRADE)],
        "as it is": [("transaction.version", 2, UPGRADE)],
        "as it is, down": [("transaction.version", 2, SAFE_DOWNGRADE)],
        "too high": [("transaction.version", 99, UPGRADE)],
        "negative": [("transaction.version", -1, UPGRADE)],
        "lower, as an upgrade": [("transaction.version", 1, UPGRADE)],
        "no such type": [("transaction.version", 2, 9)],
        "twice": [("transaction.version", 2, UPGRADE), ("transaction.version", 2, UPGRADE)],
        "one known, one not": [("transaction.version", 2, UPGRADE), ("no.such", 1, UPGRADE)],
    }
    for version in range(3):
        for label, updates in tries.items():
            entries = [
                {"Feature": name, "MaxVersionLevel": level}
                | ({"UpgradeType": kind} if version else {"AllowDowngrade": kind != UPGRADE})
                for name, level, kind in updates
            ]
            values: Values = {"timeoutMs": 9000, "FeatureUpdates": entries}
            for only_asked in (True, False) if version else (False,):
                if version:
                    values = {**values, "ValidateOnly": only_asked}
                asked = " only asked" if only_asked else ""
                yield Step(f"features v{version}{asked}: {label}", "UpdateFeatures", version, values)


def steps() -> list[Step]:
    """Return all steps."""
    return [*_versions(), *_coordinators(), *_features()]
