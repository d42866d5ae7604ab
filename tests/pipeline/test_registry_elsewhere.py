"""A foreign registry, with TLS and passwords, asked by the pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.formats.registry import PASSWORD, TOKEN, USER, Registry
from barnabas_pipeline.simulate.avro import AvroValues
from barnabas_pipeline.simulate.model import KINDS
from tests.support.registry_elsewhere import Elsewhere, registry_elsewhere


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Elsewhere]:
    with registry_elsewhere(tmp_path / "demo") as stack:
        stack.produce_order(stack.profile(tmp_path))
        yield stack


def test_the_pipeline_asks_as_it_is_told(elsewhere: Elsewhere) -> None:
    ca, admin = {"ca": elsewhere.ca}, {USER: "admin", PASSWORD: elsewhere.password}

    def registry(environment: dict[str, str], **files: str) -> Registry:
        return Registry.at(elsewhere.url, **files, environment=environment)

    at = registry(admin, **ca)
    assert json.loads(at.latest("orders-value").schema.text)["name"] == "Order"
    assert elsewhere.password not in repr(at)
    AvroValues(at, "site-", KINDS)
    assert at.latest(f"site-{KINDS[0]}-value").schema.format == "AVRO"
    assert at.to_dict() == {"url": elsewhere.url, "ca": elsewhere.ca}
    with pytest.raises(IncompleteError, match="its certificate is not trusted"):
        registry(admin).latest("orders-value")
    for refused in ({USER: "admin", PASSWORD: "wrong"}, {TOKEN: "t"}):
        with pytest.raises(IncompleteError, match="refused the login"):
            registry(refused, **ca).latest("orders-value")
    with pytest.raises(UsageError, match="exclude each other"):
        registry({**admin, TOKEN: "t"}, **ca)
    with pytest.raises(UsageError, match=r"ssl\.ca\.location '/nowhere'"):
        registry({TOKEN: "t"}, ca="/nowhere")
