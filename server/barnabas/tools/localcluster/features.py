"""Features of a new cluster: all that its brokers serve are switched on.

The rule: only in a cluster created by this command, with all brokers of this release; another cluster may have others.
"""

from __future__ import annotations

import trio

from barnabas.client import ClientError, ClientSettings, open_client
from barnabas.serving.release import KAFKA_4
from barnabas.wire.generated.update_features import UpdateFeaturesRequest

VERSION = 1
SECONDS = 30.0


async def switch_on(bootstrap: str) -> str:
    """Request the feature levels of the release from the controller, for example for KIP-848; returns the error."""
    updates = [
        UpdateFeaturesRequest.FeatureUpdateKey(
            feature=feature.name, max_version_level=feature.finalized_level
        )
        for feature in KAFKA_4.features
    ]
    request = UpdateFeaturesRequest(feature_updates=updates)
    with trio.move_on_after(SECONDS):
        try:
            async with open_client(bootstrap, ClientSettings(client_id="barnabas-cluster")) as client:
                answer = await client.ask_controller(request, version=VERSION)
        except ClientError as error:
            return str(error)
        return str(answer.error_message or f"error {answer.error_code}") if answer.error_code else ""
    return f"no answer in {SECONDS:.0f} s"
