"""The distribution of the client alone, without the broker: it produces to a broker and consumes from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.install_wheel import ROOT

from .conftest import BrokerProcess
from .test_wheel import environment, venv_with

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PROGRAM = """
import json
import re
import sys
from importlib.metadata import distribution, packages_distributions
import trio
from barnabas.client import ConsumerSettings, ProducerSettings, open_consumer, open_producer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

async def main(bootstrap):
    for codec in CODECS:
        settings = ProducerSettings.of({"compression.type": codec})
        async with open_producer(bootstrap, settings=settings) as producer:
            await producer.send_and_wait("events", codec.encode() * 100, partition=0)
    values = []
    settings = ConsumerSettings(group_id="readers", offset_reset="earliest")
    async with open_consumer(bootstrap, "events", settings=settings) as consumer:
        async for record in consumer:
            values.append(record.value[: len(record.value) // 100].decode())
            if len(values) == len(CODECS):
                return values

def required(name):
    names = {name.lower().replace("_", "-")}
    for line in distribution(name).requires or []:
        if "extra ==" not in line:
            try:
                names |= required(re.match(r"[\\w.-]+", line)[0])
            except ModuleNotFoundError:
                pass
    return names

values = trio.run(main, sys.argv[1])
owners = packages_distributions()
loaded = {owner for module in list(sys.modules) for owner in owners.get(module, [])}
ours = sorted({name.split(".")[1] for name in sys.modules if name.startswith("barnabas.")})
foreign = {name.lower().replace("_", "-") for name in loaded} - required("barnabas-client")
print(json.dumps({"values": values, "packages": ours, "not required": sorted(foreign)}))
"""


def test_client_without_broker_produces_and_consumes(broker: BrokerProcess, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        f"import hatchling.build; hatchling.build.build_wheel({str(tmp_path)!r})",
    ]
    subprocess.run(command, cwd=ROOT / "clients" / "python", check=True)
    (wheel,) = tmp_path.glob("barnabas_client-*-py3-none-any.whl")
    programs = venv_with(wheel, tmp_path / "venv")
    done = subprocess.run(
        [programs / "python", "-c", PROGRAM, broker.bootstrap],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment(), timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "values": ["none", "gzip", "snappy", "lz4", "zstd"],
        "packages": ["client", "errors", "network", "patterns", "records", "wire"],
        "not required": [],
    }
