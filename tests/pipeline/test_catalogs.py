"""Catalogs that the documentation names: a table's whole life in each, as stock readers see it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs import branches
from barnabas_pipeline.jobs.compact import compact
from barnabas_pipeline.jobs.current import CurrentOptions, CurrentRows
from barnabas_pipeline.jobs.erase import erase
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.jobs.loading import load
from barnabas_pipeline.lake.changes import PLAIN, Shape
from barnabas_pipeline.lake.iceberg import Lake, Place
from barnabas_pipeline.lake.vacuum import vacuum

from .cells import BAD, compared
from .stores import BUCKET, KEYS, FailingS3
from .tables import GROWN, SCHEMA
from .topics import Here, Topic, login


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The place of a table in an empty catalog, by its kind."""
    if request.param == "rest":
        properties, lake = request.getfixturevalue("rest_catalog").properties, f"{tmp_path}/lake"
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


@pytest.mark.parametrize("place", ["rest", "glue"], indirect=True)
def test_table_lives_in_a_catalog(place: Place, tmp_path: Path) -> None:
    topic = Topic(tmp_path / "data")
    options = LoadOptions(topic.options, place, SCHEMA, tag="first")
    topic.append(*(b"no JSON" if n == BAD else login(0, f"m{n}") for n in range(4)))
    load(Here(), options)
    topic.append(login(0, "m4", device="d"))
    load(Here(), replace(options, schema=GROWN, tag=""))
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
