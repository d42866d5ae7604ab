"""AlterUserScramCredentials v0: credentials of users, with passwords that clients have salted (KIP-554).

The rule: each user is answered once; one invalid alteration is the user's error, and none of its credentials is altered.
Brokers answer DescribeUserScramCredentials.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, Handlers, Outcome
from barnabas.cluster.kraft.controller.versions import SCRAM_LEVEL
from barnabas.cluster.metadata.scram_alterations import TWICE, Alteration, Deletion, Problem, problem_of
from barnabas.security.authorizer import Operation
from barnabas.security.scram import BY_TYPE, credential_of_salted
from barnabas.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata_records.remove_user_scram_credential import (
    RemoveUserScramCredentialRecord,
)
from barnabas.wire.generated.metadata_records.user_scram_credential import UserScramCredentialRecord

ALTER_USER_SCRAM_CREDENTIALS: Final = 51
TOO_LOW: Problem = (
    ErrorCode.UNSUPPORTED_VERSION,
    f"SCRAM credentials need metadata.version {SCRAM_LEVEL}",
)


def alter_user_scram_credentials(
    state: ControllerState, request: AlterUserScramCredentialsRequest, caller: Caller
) -> Outcome:
    """Delete and set credentials; a user that is named twice is refused."""
    caller.require_on_cluster(Operation.ALTER)
    image = state.image
    alterations: dict[str, Alteration] = {}
    problems: dict[str, Problem] = {}
    asked: list[Alteration] = [*request.deletions, *request.upsertions]
    for alteration in asked:
        if alteration.name in problems:
            continue
        problem: Problem | None
        if alteration.name in alterations:
            problem = TWICE
        elif image.metadata_version < SCRAM_LEVEL:
            problem = TOO_LOW
        else:
            problem = problem_of(alteration, lambda user, mechanism: (user, mechanism.type) in image.users)
        if problem is None:
            alterations[alteration.name] = alteration
        else:
            problems[alteration.name] = problem
            alterations.pop(alteration.name, None)
    result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    results = [result(user=name, error_message=None) for name in alterations]
    results += [
        result(user=name, error_code=code, error_message=text) for name, (code, text) in problems.items()
    ]
    return Outcome(
        AlterUserScramCredentialsResponse(results=results), tuple(map(_record, alterations.values()))
    )


def _record(alteration: Alteration) -> Any:
    if isinstance(alteration, Deletion):
        return RemoveUserScramCredentialRecord(alteration.name, alteration.mechanism)
    credential = credential_of_salted(
        BY_TYPE[alteration.mechanism],
        bytes(alteration.salted_password),
        bytes(alteration.salt),
        alteration.iterations,
    )
    return UserScramCredentialRecord(
        alteration.name,
        alteration.mechanism,
        credential.salt,
        credential.stored_key,
        credential.server_key,
        credential.iterations,
    )


HANDLERS: Handlers = {ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials}
