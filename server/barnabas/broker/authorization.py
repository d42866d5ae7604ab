"""The authorizer that the settings ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config import broker as settings
from barnabas.config import releases
from barnabas.config.authorizer import has_authorizer, super_users
from barnabas.security.authorizer import AllowEverything, Authorizer

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.config.loading import BrokerConfig


def authorizer_of(config: BrokerConfig, metadata: MetadataStore) -> Authorizer:
    """Return the authorizer: by the ACLs in the metadata, or one that allows every request.

    Raises SettingError if `super.users` is invalid.
    """
    if not has_authorizer(config):
        return AllowEverything()
    from barnabas.security.standard_authorizer import StandardAuthorizer

    return StandardAuthorizer(
        lambda: metadata.image.acls,
        super_users(config),
        allows_without_acls=bool(config.get(settings.ALLOW_EVERYONE_IF_NO_ACL_FOUND)),
        knows_networks=releases.knows_networks(config.get(settings.KAFKA_VERSION)),
    )
