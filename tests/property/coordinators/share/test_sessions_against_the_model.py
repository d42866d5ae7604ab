"""Random ShareFetch and ShareAcknowledge requests in share sessions of any epoch: the model predicts how each ends.

Each goes through its handler; nothing is read or acknowledged. Epochs and partitions are compared after every step.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.coordinators.share.sessions import ShareSession, ShareSessions
from barnabas.coordinators.share.settings import ShareSettings
from barnabas.errors import RequestError
from barnabas.handlers import share_acknowledge, share_fetch
from barnabas.handlers.shared import share_common
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.share_acknowledge import ShareAcknowledgeRequest
from barnabas.wire.generated.share_fetch import ShareFetchRequest
from tests.models import share_sessions
from tests.models.share_sessions import FINAL, LAST_EPOCH
from tests.models.transactions import RefusedError
from tests.support.effort import examples
from tests.support.slips import unnoticed

TOPICS = [bytes([number]) * 16 for number in (1, 2)]
PARTITIONS = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 1)), max_size=4)
WHO = st.sampled_from(
    [("g", "a")] * 4 + [("g", "b"), ("h", "a"), ("h", "b"), ("g", ""), ("g", "a" * 37), ("g", "b" * 36)]
)
STEPS = st.sampled_from([0] * 8 + [1, -1])


class Requests(RuleBasedStateMachine):
    @initialize(most=st.integers(1, 4))
    def begin(self, most: int) -> None:
        self.sessions = ShareSessions(most)
        self.model = share_sessions.ShareSessions(most)
        self.services = {
            "metadata": SimpleNamespace(image=ClusterImage("c")),
            "budget": SimpleNamespace(checkpoint=at_once),
            "shares": SimpleNamespace(
                sessions=self.sessions,
                partitions=SimpleNamespace(settings_of=lambda group_id: ShareSettings()),
                end_session=self.end_session,
            ),
        }
        self.config = SimpleNamespace(get=lambda setting: 1)

    async def end_session(self, key) -> None:
        self.sessions.close(key)

    def compare(self, answering, predicted) -> None:
        """Let the handler answer and the model predict; both must end in the same way."""
        response = trio.run(awaited, answering)
        got = [
            (topic.topic_id, partition.partition_index)
            for topic in response.responses
            for partition in topic.partitions
        ]
        try:
            expected, code = predicted() or [], "NONE"
        except RefusedError as refusal:
            expected, code = [], str(refusal)
        assert (ErrorCode(response.error_code).name, sorted(got)) == (code, sorted(expected))

    def epoch(self, who, step: int, is_final: bool) -> int:
        session = self.model.sessions.get(who)
        return FINAL if is_final else max((1 if session is None else session.epoch) + step, 0)

    @rule(
        who=WHO, step=STEPS, kind=st.sampled_from(["first", "next", "next", "next", "last"]), named=PARTITIONS,
        forgotten=PARTITIONS, connection=st.integers(1, 2), acknowledges=st.sampled_from([False, False, True]),
    )  # fmt: skip
    def fetch(self, who, step, kind, named, forgotten, connection, acknowledges) -> None:
        epoch = 0 if kind == "first" else self.epoch(who, step, kind == "last")
        request = ShareFetchRequest(
            group_id=who[0], member_id=who[1], share_session_epoch=epoch, max_wait_ms=0
        )
        for topic_id, index in named:
            part = ShareFetchRequest.FetchPartition(partition_index=index)
            if acknowledges:
                part.acknowledgement_batches = [ShareFetchRequest.AcknowledgementBatch(0, 0, [1])]
            request.topics.append(ShareFetchRequest.FetchTopic(topic_id, [part]))
        request.forgotten_topics_data = [
            ShareFetchRequest.ForgottenTopic(topic, [index]) for topic, index in forgotten
        ]
        acknowledged = {*named} if acknowledges else set()

        def predicted():
            told = self.model.fetch(
                *who, epoch, named, forgotten, connection, acknowledges=acknowledges and bool(named)
            )
            return {*told} | acknowledged

        self.compare(
            share_fetch.ShareFetch(config=self.config, tiered=None, **self.services).handle(
                context(connection), request
            ),
            predicted,
        )

    @rule(who=WHO, step=STEPS, kind=st.sampled_from(["first", "next", "next", "next", "last"]))
    def acknowledge(self, who, step, kind) -> None:
        epoch = 0 if kind == "first" else self.epoch(who, step, kind == "last")
        request = ShareAcknowledgeRequest(group_id=who[0], member_id=who[1], share_session_epoch=epoch)
        self.compare(
            share_acknowledge.ShareAcknowledge(**self.services).handle(context(1), request),
            lambda: self.model.acknowledge(*who, epoch),
        )

    @rule(connection=st.integers(1, 2), happens=st.sampled_from([True, False, False, False]))
    def disconnect(self, connection: int, happens: bool) -> None:
        if happens:
            for session in self.sessions.of_connection(connection):
                self.sessions.close(session.key)
            self.model.disconnect(connection)

    @property
    def held(self) -> Any:
        return self.sessions._sessions

    @rule()
    def use_up_the_epochs(self) -> None:
        """As if members had gone on for long."""
        for key, session in self.model.sessions.items():
            self.held[key].epoch = session.epoch = LAST_EPOCH

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "sessions"):
            return
        expected = {
            session.key: (session.connection_id, session.epoch, list(session.topic_partitions))
            for session in self.held.values()
        }
        assert expected == {
            key: (session.connection, session.epoch, session.partitions)
            for key, session in self.model.sessions.items()
        }


async def awaited(answering):
    return await answering


async def at_once() -> None:
    """Do not yield."""


def context(connection: int):
    return SimpleNamespace(
        api_version=1,
        quotas=None,
        connection=SimpleNamespace(connection_id=connection, listener=SimpleNamespace(name="x")),
    )


Requests.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestRequests = Requests.TestCase


# --- planted slips ----------------------------------------------------------------------------------------------

_open, _resume, _update, _check = (
    ShareSessions.open, ShareSessions.resume, ShareSession.update, share_common.check_asker,
)  # fmt: skip


def _one_more(self, key, topic_partitions, connection_id):
    self._sessions_max += 1
    try:
        return _open(self, key, topic_partitions, connection_id)
    finally:
        self._sessions_max -= 1


def _older_ones_count(self, key, topic_partitions, connection_id):
    if len(self._sessions) >= self._sessions_max:
        raise RequestError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
    return _open(self, key, topic_partitions, connection_id)


def _repeated(self, key, epoch):
    session = self._sessions.get(key)
    if session is not None and epoch == session.epoch - 1 > 0:
        return session
    return _resume(self, key, epoch)


def _back_to_the_first(self, key, epoch):
    session = _resume(self, key, epoch)
    if epoch == LAST_EPOCH:
        session.epoch = 0
    return session


def _final_in_its_turn(self, key, epoch):
    session = _resume(self, key, epoch)
    if epoch == FINAL and session.epoch == 1:
        raise RequestError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    return session


def _added_last(self, added, forgotten):
    _update(self, (), forgotten)
    _update(self, added, ())


SLIPS = {
    "there is room for one session more": (ShareSessions, "open", _one_more),
    "a session that is replaced takes room": (ShareSessions, "open", _older_ones_count),
    "a request may be repeated": (ShareSessions, "resume", _repeated),
    "after the last epoch comes the first": (ShareSessions, "resume", _back_to_the_first),
    "a new session has no last request": (ShareSessions, "resume", _final_in_its_turn),
    "what is added and forgotten is added": (ShareSession, "update", _added_last),
    "an acknowledgement begins a session": (share_acknowledge, "EPOCH_INITIAL", -9),
    "a member id may be longer": (share_common, "MEMBER_ID_LENGTH_MAX", 37),
    "a session ends with any connection": (
        ShareSessions, "of_connection", lambda self, connection_id: list(self._sessions.values()),
    ),
}  # fmt: skip


def test_slips_are_noticed() -> None:
    assert unnoticed(Requests, SLIPS, f"{__file__}::test_slips_are_noticed") == []
