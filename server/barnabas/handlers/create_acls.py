"""CreateAcls v0-v3. Each ACL has its own result; creating an existing one succeeds, as in Kafka.

v0 has literal patterns only. Brokers of 4.4 accept networks as hosts, and refuse invalid ones with INVALID_REQUEST
(KIP-1276). Requires ALTER on the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.access_changes import AclAdded
from barnabas.cluster.metadata.acl_requests import ACLS_MAX, CHANGES_MAX, binding_of
from barnabas.cluster.metadata.image import ClusterImage
from barnabas.cluster.metadata.protocol_version import V2_0_IV1, ProtocolVersion
from barnabas.config import broker as settings
from barnabas.config import releases
from barnabas.config.keeper import is_on_zookeeper
from barnabas.errors import RequestError
from barnabas.handlers.shared.acl_requests import require_authorizer
from barnabas.wire.generated.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.security.acls import AclBinding
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Result = CreateAclsResponse.AclCreationResult


@dataclass(eq=False)
class CreateAcls:
    """Handler of CreateAcls."""

    config: BrokerConfig
    metadata: MetadataStore
    budget: LoopBudget

    async def handle(self, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
        """Create the ACLs that can be, and answer once this broker enforces them."""
        require_authorizer(context)
        if len(request.creations) > CHANGES_MAX:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION, f"no more than {CHANGES_MAX} ACLs can be created at once"
            )
        response = CreateAclsResponse()
        new: dict[AclBinding, None] = {}
        knows_networks = releases.knows_networks(self.config.get(settings.KAFKA_VERSION))
        in_znodes = is_on_zookeeper(self.config)
        has_prefixes = (
            not in_znodes
            or ProtocolVersion.parse(self.config.get(settings.INTER_BROKER_PROTOCOL_VERSION)) >= V2_0_IV1
        )
        for asked in request.creations:
            try:
                acl = binding_of(
                    asked, in_znodes=in_znodes, has_prefixes=has_prefixes, knows_networks=knows_networks
                )
                new[acl] = None
                response.results.append(Result())
            except RequestError as error:
                response.results.append(Result(error.code, error.message))
            await self.budget.checkpoint()

        def decide(image: ClusterImage) -> Iterator[AclAdded]:
            room = ACLS_MAX - image.acls.count
            for acl in new:
                if acl not in image.acls:
                    room -= 1
                    if room < 0:
                        raise RequestError(ErrorCode.POLICY_VIOLATION, f"there are {ACLS_MAX} ACLs, the most")
                    yield AclAdded(acl)

        if new:
            await self.metadata.change(decide)
        return response
