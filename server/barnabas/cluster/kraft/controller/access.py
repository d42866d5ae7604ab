"""ACLs: CreateAcls, DeleteAcls and DescribeAcls v1-v3, and the permissions that an image's ACLs grant to callers.

The rule: an ACL exists once: to create an existing ACL succeeds and writes no record. Entries of CreateAcls and filters of
DeleteAcls are answered one by one. Too many changes are refused as a whole: a part could be mistaken for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, Handlers, Outcome
from barnabas.cluster.kraft.controller.versions import NETWORKS_LEVEL
from barnabas.cluster.kraft.image import QuorumImage
from barnabas.cluster.kraft.translation import acl_of, binding
from barnabas.cluster.kraft.values import Acl
from barnabas.cluster.metadata.acl_requests import CHANGES_MAX, binding_of, filter_of, filter_to_delete
from barnabas.config import broker as settings
from barnabas.config.authorizer import has_authorizer, super_users
from barnabas.config.loading import BrokerConfig
from barnabas.errors import RequestError
from barnabas.security.acls import NO_ACLS, AclBinding, ResourcePattern, host_of
from barnabas.security.authorizer import AllowEverything, Authorizer, Operation, Requester, ResourceType
from barnabas.security.standard_authorizer import StandardAuthorizer
from barnabas.wire.generated.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.wire.generated.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.wire.generated.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata_records.access_control_entry import AccessControlEntryRecord
from barnabas.wire.generated.metadata_records.remove_access_control_entry import (
    RemoveAccessControlEntryRecord,
)
from barnabas.wire.ids import new_uuid

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
May = Callable[[Operation, ResourceType, str], bool]
_NO_ACLS: Final[Mapping[bytes, Acl]] = {}


class Permissions:
    """Permissions of callers, by the ACLs of the newest image passed to `of`, `super.users`, and the default.

    Without an authorizer everything is allowed.
    """

    def __init__(self, config: BrokerConfig) -> None:
        """Raises SettingError if `super.users` cannot be read."""
        self._has_authorizer = has_authorizer(config)
        self._super_users = super_users(config)
        self._allows_without_acls = bool(config.get(settings.ALLOW_EVERYONE_IF_NO_ACL_FOUND))
        self._followed = _NO_ACLS
        self._acls = NO_ACLS
        self._knows_networks = False
        self._authorizer: Authorizer = self._new_authorizer()

    def of(self, image: QuorumImage, principal: str, host: str) -> May:
        """Return the function that decides whether a caller may do something, for `Caller.may`; `host` is its address."""
        self._follow(image)
        authorizer, requester = self._authorizer, Requester(principal, host_of(host))
        return lambda operation, kind, name: authorizer.allows(requester, operation, kind, name)

    def reason(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> str:
        """Name the rule that a decision follows from, for the log of denials."""
        return self._authorizer.reason(Requester(principal, host_of(host)), operation, resource_type, name)

    def _new_authorizer(self) -> Authorizer:
        if not self._has_authorizer:
            return AllowEverything()
        return StandardAuthorizer(
            lambda: self._acls,
            self._super_users,
            allows_without_acls=self._allows_without_acls,
            knows_networks=self._knows_networks,
        )

    def _follow(self, image: QuorumImage) -> None:
        """Apply the ACL changes of an image. Takes time for each ACL if any has changed."""
        if image.acls is not self._followed:
            before, after = self._followed, image.acls
            removed = {acl for acl_id, acl in before.items() if after.get(acl_id) != acl}
            if removed:
                removed.difference_update(after.values())
            added = [acl for acl_id, acl in after.items() if before.get(acl_id) != acl]
            self._acls = self._acls.changed(map(binding, added), map(binding, removed))
            self._followed = after
        knows_networks = image.metadata_version >= NETWORKS_LEVEL
        if knows_networks != self._knows_networks:
            self._knows_networks = knows_networks
            self._authorizer = self._new_authorizer()


def create_acls(state: ControllerState, request: CreateAclsRequest, caller: Caller) -> Outcome:
    """Create the valid ACLs of a request. Raises POLICY_VIOLATION for too many at once.

    A network as the host is refused below NETWORKS_LEVEL, as in Kafka 4.4: at that level it would begin to match
    clients.
    """
    caller.require_on_cluster(Operation.ALTER)
    _require_authorizer(state)
    present = set(state.image.acls.values())
    records: dict[bytes, AccessControlEntryRecord] = {}
    response = CreateAclsResponse()
    for creation in request.creations:
        try:
            is_early = "/" in creation.host and state.image.metadata_version < NETWORKS_LEVEL
            acl = acl_of(binding_of(creation, in_znodes=False, knows_networks=not is_early))
            if is_early:
                raise RequestError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"networks as hosts need metadata.version {NETWORKS_LEVEL}, and the cluster has "
                    f"{state.image.metadata_version}",
                )
        except RequestError as error:
            response.results.append(CreateAclsResponse.AclCreationResult(error.code, error.message))
            continue
        response.results.append(CreateAclsResponse.AclCreationResult())
        if acl not in present:
            present.add(acl)
            acl_id = new_uuid(state.entropy)
            while acl_id in state.image.acls or acl_id in records:
                acl_id = new_uuid(state.entropy)
            records[acl_id] = AccessControlEntryRecord(acl_id, *acl)
    if len(records) > CHANGES_MAX:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION, f"no more than {CHANGES_MAX} ACLs can be created at once"
        )
    return Outcome(response, tuple(records.values()))


def delete_acls(state: ControllerState, request: DeleteAclsRequest, caller: Caller) -> Outcome:
    """Delete the ACLs that match each filter; two filters may match the same ACL. Raises INVALID_REQUEST for too many."""
    caller.require_on_cluster(Operation.ALTER)
    _require_authorizer(state)
    bindings = {acl_id: binding(acl) for acl_id, acl in state.image.acls.items()}
    removed: dict[bytes, None] = {}
    response = DeleteAclsResponse()
    for asked in request.filters:
        try:
            acl_filter = filter_to_delete(asked)
        except RequestError as error:
            response.filter_results.append(
                DeleteAclsResponse.DeleteAclsFilterResult(error.code, error.message)
            )
            continue
        matching = [acl_id for acl_id, acl in bindings.items() if acl_filter.matches(acl)]
        removed.update(dict.fromkeys(matching))
        if len(removed) > CHANGES_MAX:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot remove more than {CHANGES_MAX} acls in a single delete operation.",
            )
        response.filter_results.append(
            DeleteAclsResponse.DeleteAclsFilterResult(
                0, None, [_deleted(bindings[acl_id]) for acl_id in matching]
            )
        )
    return Outcome(response, tuple(RemoveAccessControlEntryRecord(acl_id) for acl_id in removed))


def describe_acls(state: ControllerState, request: DescribeAclsRequest, caller: Caller) -> Outcome:
    """Describe the ACLs that match a filter, by resource pattern."""
    caller.require_on_cluster(Operation.DESCRIBE)
    _require_authorizer(state)
    acl_filter = filter_of(request)
    resources: dict[ResourcePattern, DescribeAclsResponse.DescribeAclsResource] = {}
    for acl in map(binding, state.image.acls.values()):
        if acl_filter.matches(acl):
            kind, pattern_type, name = acl.pattern
            resource = resources.setdefault(
                acl.pattern, DescribeAclsResponse.DescribeAclsResource(kind, name, pattern_type)
            )
            resource.acls.append(DescribeAclsResponse.AclDescription(*acl.entry))
    return Outcome(DescribeAclsResponse(resources=list(resources.values())))


def _require_authorizer(state: ControllerState) -> None:
    if not has_authorizer(state.config):
        raise RequestError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def _deleted(acl: AclBinding) -> DeleteAclsResponse.DeleteAclsMatchingAcl:
    (kind, pattern_type, name), (principal, host, operation, permission) = acl
    return DeleteAclsResponse.DeleteAclsMatchingAcl(
        0, None, kind, name, pattern_type, principal, host, operation, permission
    )


HANDLERS: Handlers = {
    DESCRIBE_ACLS: describe_acls,
    CREATE_ACLS: create_acls,
    DELETE_ACLS: delete_acls,
}
