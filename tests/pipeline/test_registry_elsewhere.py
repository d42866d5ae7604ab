"""A registry that is somebody else's, with TLS and passwords, asked by the pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.formats import registry as registries
from barnabas_pipeline.simulate.avro import AvroValues
from barnabas_pipeline.simulate.model import KINDS
from tests.support.registry_elsewhere import Elsewhere, registry_elsewhere


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Elsewhere]:
    with registry_elsewhere(tmp_path / "demo") as found:
        found.produce_order(found.profile(tmp_path))
        yield found


def test_the_pipeline_asks_as_it_is_told(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    def one(**files: str) -> registries.Registry:
        return registries.Registry.at(elsewhere.url, **files)

    monkeypatch.setattr(registries, "TRIES", 1)
    monkeypatch.setenv(registries.USER, "admin")
    monkeypatch.setenv(registries.PASSWORD, elsewhere.password)
    found = one(ca=elsewhere.ca)
    assert json.loads(found.latest("orders-value").schema.text)["name"] == "Order"
    assert elsewhere.password not in repr(found)
    AvroValues(found, "site-", KINDS)
    assert found.latest(f"site-{KINDS[0]}-value").schema.format == "AVRO"
    assert found.to_dict() == {"url": elsewhere.url, "ca": elsewhere.ca}
    with pytest.raises(IncompleteError, match="its certificate is not trusted"):
        one().latest("orders-value")
    monkeypatch.setenv(registries.PASSWORD, "wrong")
    with pytest.raises(IncompleteError, match="refused the login"):
        one(ca=elsewhere.ca).latest("orders-value")
    monkeypatch.setenv(registries.TOKEN, "t")
    with pytest.raises(UsageError, match="exclude each other"):
        one(ca=elsewhere.ca)
    monkeypatch.delenv(registries.USER)
    with pytest.raises(IncompleteError, match="refused the login"):
        one(ca=elsewhere.ca).latest("orders-value")
    with pytest.raises(UsageError, match=r"ssl\.ca\.location '/nowhere'"):
        one(ca="/nowhere")
