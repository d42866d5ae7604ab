"""AlterUserScramCredentials v0. Sets and deletes SCRAM credentials of users (KIP-554); clients send salted passwords.

Each user has one result. An error in one of a user's alterations is that user's error, and none of the user's alterations
is applied; other users are altered. A user that is named twice: DUPLICATE_RESOURCE.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.access_changes import ScramCredentialChanged
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.cluster.metadata.scram_alterations import (
    NOT_THERE,
    TWICE,
    Alteration,
    Deletion,
    Problem,
    problem_of,
)
from barnabas.security.scram import BY_TYPE, ScramMechanism, credential_of_salted
from barnabas.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


@dataclass(eq=False)
class AlterUserScramCredentials:
    """Handler of AlterUserScramCredentials."""

    metadata: MetadataStore
    budget: LoopBudget

    async def handle(
        self, context: RequestContext, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        """Make all valid alterations together, and answer each user."""
        alterations: dict[str, Alteration] = {}
        problems: dict[str, Problem] = {}
        asked: list[Alteration] = [*request.deletions, *request.upsertions]
        for alteration in asked:
            await self.budget.checkpoint()
            if alteration.name in problems:
                continue
            if alteration.name in alterations:
                problems[alteration.name] = TWICE
                continue
            problem = problem_of(alteration, self._has)
            if problem is not None:
                problems[alteration.name] = problem
            else:
                alterations[alteration.name] = alteration
        accepted = [alteration for name, alteration in alterations.items() if name not in problems]
        missing: set[str] = set()

        def decide(image: ClusterImage) -> Iterator[Change | None]:
            missing.clear()
            for alteration in accepted:
                if _is_missing(alteration, image):
                    missing.add(alteration.name)
                    yield None
                else:
                    yield _change(alteration)

        if accepted:
            await self.metadata.change(decide)
        problems |= dict.fromkeys(missing, NOT_THERE)
        return await self._answered(context, alterations, problems)

    def _has(self, user: str, mechanism: ScramMechanism) -> bool:
        return mechanism.name in self.metadata.image.scram.get(user, {})

    async def _answered(
        self, context: RequestContext, alterations: dict[str, Alteration], problems: dict[str, Problem]
    ) -> AlterUserScramCredentialsResponse:
        done = [name for name in alterations if name not in problems]
        if done:
            log.info("SCRAM credentials of %d users altered by %s", len(done), context.connection.principal)
        response = AlterUserScramCredentialsResponse()
        for name in done:
            response.results.append(Result(user=name, error_message=None))
            await self.budget.checkpoint()
        for name, (code, text) in problems.items():
            response.results.append(Result(user=name, error_code=code, error_message=text))
            await self.budget.checkpoint()
        return response


def _is_missing(alteration: Alteration, image: ClusterImage) -> bool:
    """Return whether this deletes a credential that does not exist."""
    return isinstance(alteration, Deletion) and BY_TYPE[alteration.mechanism].name not in image.scram.get(
        alteration.name, {}
    )


def _change(alteration: Alteration) -> ScramCredentialChanged:
    mechanism = BY_TYPE[alteration.mechanism]
    if isinstance(alteration, Deletion):
        return ScramCredentialChanged(alteration.name, mechanism.name, None)
    credential = credential_of_salted(
        mechanism, bytes(alteration.salted_password), bytes(alteration.salt), alteration.iterations
    )
    return ScramCredentialChanged(alteration.name, mechanism.name, credential)
