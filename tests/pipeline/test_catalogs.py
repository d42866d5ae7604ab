"""Catalogs that the documentation names: a table's whole life in each, as stock readers see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from pyiceberg.exceptions import CommitFailedException

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs import branches
from barnabas_pipeline.jobs.compact import compact
from barnabas_pipeline.jobs.current import CurrentOptions, CurrentRows
from barnabas_pipeline.jobs.erase import erase
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.jobs.loading import load
from barnabas_pipeline.lake.changes import PLAIN, Shape
from barnabas_pipeline.lake.commits import changing
from barnabas_pipeline.lake.iceberg import PATH, SHA256, VERSION, Lake, Place
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.vacuum import vacuum
from compat import nessie

from .cells import BAD, compared
from .stores import BUCKET, KEYS, FailingS3
from .tables import GROWN, SCHEMA
from .topics import Here, Topic, login

TOOLS = Path(__file__).resolve().parents[2] / ".tools"


@pytest.fixture
def nessie_catalog(s3: FailingS3, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The properties of a catalog of Nessie with tables in S3, empty."""
    with nessie.served(TOOLS, tmp_path, f"s3://{BUCKET}/{tmp_path.name}", s3.properties) as uri:
        yield {"type": "rest", "uri": uri, **s3.properties}


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The place of a table in an empty catalog, by its kind."""
    if request.param == "rest":
        properties, lake = request.getfixturevalue("rest_catalog").properties, f"{tmp_path}/lake"
    elif request.param == "hive":
        properties, lake = (
            {"type": "hive", "uri": request.getfixturevalue("hive_catalog")},
            f"{tmp_path}/lake",
        )
    elif request.param == "nessie":
        properties, lake = request.getfixturevalue("nessie_catalog"), f"s3://{BUCKET}/{tmp_path.name}"
    else:
        s3: FailingS3 = request.getfixturevalue("s3")
        lake = f"s3://{BUCKET}/{tmp_path.name}"
        named = {"access-key-id": KEYS["access"], "secret-access-key": KEYS["secret"], "region": "us-east-1"}
        properties = {f"glue.{name}": value for name, value in named.items()}
        properties |= {"type": "glue", "glue.endpoint": s3.endpoint, **s3.properties}
    return Lake(lake, properties=tuple(sorted(properties.items()))).place("logins", f"{tmp_path.name}.logins")


def rows_of(place: Place, name: str = "") -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("other", **dict(place.properties)).load_table(f"{place.name}{name}").scan().to_arrow()


def check_conflict(stale: Table) -> None:
    """Check that a commit to the snapshot that a table was read at is refused after another commit."""
    transaction = changing(stale.existing, {VERSION: "2", PATH: "x", SHA256: "y"}, [], [])
    with pytest.raises(CommitFailedException):
        transaction.commit_transaction()


@pytest.mark.parametrize("place", ["rest", "glue", "hive"], indirect=True)
def test_table_lives_in_a_catalog(place: Place, tmp_path: Path) -> None:
    topic = Topic(tmp_path / "data")
    options = LoadOptions(topic.options, place, SCHEMA, tag="first")
    topic.append(*(b"no JSON" if n == BAD else login(0, f"m{n}") for n in range(4)))
    load(Here(), options)
    stale = Table(place)
    stale.state()
    topic.append(login(0, "m4", device="d"))
    load(Here(), replace(options, schema=GROWN, tag=""))
    check_conflict(stale)
    assert rows_of(place)["device"].to_pylist().count("d") == 1
    assert rows_of(place, "__dead")["reason"].to_pylist() == ["json"]
    assert compact(Here(), place).files_after == 1  # type: ignore[arg-type]
    staged = replace(options, root=replace(place, branch="staged"), schema=GROWN, tag="")
    topic.append(login(0, "m5"))
    load(Here(), staged)
    assert rows_of(place).num_rows == 4
    assert branches.publish(Here(), staged, comparing=compared).loaded == 5  # type: ignore[arg-type]
    assert erase(place, "member = 'm0'").rows == 1
    current = CurrentRows(CurrentOptions(place, Here, Shape(("member",), PLAIN, 2)))  # type: ignore[arg-type]
    assert current.round().has_done
    assert sorted(rows_of(place, "__current")["member"].to_pylist()) == ["m1", "m3", "m4", "m5"]
    assert vacuum(place, age_seconds=-1)
    assert sorted(rows_of(place)["_offset"].to_pylist()) == [1, 3, 4, 5]
    other = replace(place, location=f"{place.location}-other")
    with pytest.raises(UsageError, match="give --table"):
        load(Here(), replace(options, root=other))


def branched(place: Place, name: str) -> Place:
    """Create a branch of Nessie's at its main one; returns the place of the table there."""
    properties = dict(place.properties)
    server = properties["uri"].removesuffix("/iceberg/main")
    main = requests.get(f"{server}/api/v2/trees/main", timeout=10).json()["reference"]
    created = requests.post(
        f"{server}/api/v2/trees", params={"name": name, "type": "BRANCH"}, json=main, timeout=10
    )
    created.raise_for_status()
    properties["uri"] = f"{server}/iceberg/{name}"
    return replace(place, properties=tuple(sorted(properties.items())))


@pytest.mark.parametrize("place", ["nessie"], indirect=True)
def test_table_lives_in_nessie_without_branches_and_tags(place: Place, tmp_path: Path) -> None:
    topic = Topic(tmp_path / "data")
    options = LoadOptions(topic.options, place, SCHEMA)
    topic.append(*(b"no JSON" if n == BAD else login(0, f"m{n}") for n in range(4)))
    load(Here(), options)
    stale = Table(place)
    stale.state()
    topic.append(login(0, "m4", device="d"))
    load(Here(), replace(options, schema=GROWN))
    assert rows_of(place)["device"].to_pylist().count("d") == 1
    assert rows_of(place, "__dead")["reason"].to_pylist() == ["json"]
    check_conflict(stale)
    assert compact(Here(), place).files_after == 1  # type: ignore[arg-type]
    staged = replace(options, root=branched(place, "staged"), schema=GROWN)
    topic.append(login(0, "m5"))
    load(Here(), staged)
    assert rows_of(staged.root).num_rows == 5  # type: ignore[arg-type]
    for refused in (replace(options, root=replace(place, branch="staged")), replace(options, tag="first")):
        with pytest.raises(UsageError, match="neither branches nor tags"):
            load(Here(), replace(refused, schema=GROWN))
    assert rows_of(place).num_rows == 4
    load(Here(), replace(options, schema=GROWN))
    assert erase(place, "member = 'm0'").rows == 1
    current = CurrentRows(CurrentOptions(place, Here, Shape(("member",), PLAIN, 2)))  # type: ignore[arg-type]
    assert current.round().has_done
    assert sorted(rows_of(place, "__current")["member"].to_pylist()) == ["m1", "m3", "m4", "m5"]
    with pytest.raises(UsageError, match=r"gc\.enabled=false"):
        vacuum(place, age_seconds=-1)
    with pytest.raises(UsageError, match=r"gc\.enabled=false"):
        current.table.vacuum(-1)
    assert sorted(rows_of(place)["_offset"].to_pylist()) == [1, 3, 4, 5]
