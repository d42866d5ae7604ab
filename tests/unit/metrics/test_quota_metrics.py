"""Metrics show the clients that quotas throttle."""

from barnabas.metrics.families import Families
from barnabas.metrics.of_quotas import SHOWN_MAX, client_quota_families
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.quotas.clients import ClientQuotas
from barnabas.serving.quotas.entities import QuotaEntity
from barnabas.serving.request_quotas import BrokerQuotas

PRODUCE, CREATE_TOPICS = 0, 19


class Request:
    acks = 1


def quotas_of(quotas):
    clients = ClientQuotas(samples=11, window_ms=1000, mutation_samples=11, mutation_window_ms=1000)
    broker_quotas = BrokerQuotas(clients, LoopBudget(), lambda: 1000.0)
    broker_quotas.follow(quotas, quotas)
    return broker_quotas


def shown(quotas):
    families = Families()
    client_quota_families(families, quotas)
    return {
        (name, dict(labels)["user"], dict(labels)["client_id"]): value
        for family in families
        for name, labels, value in family.samples()
    }


def test_throttled_clients_are_shown_with_count_and_time():
    quotas = quotas_of({QuotaEntity("alice"): {"producer_byte_rate": 100.0, "controller_mutation_rate": 1.0}})
    assert quotas.begin("alice", "app", PRODUCE).throttle_ms(Request, 2000) == 10_000
    mutations = quotas.begin("alice", "app", CREATE_TOPICS).mutations(refuses=True)
    mutations.charge("t", 4)
    assert shown(quotas) == {
        ("kafka_server_produce_byte_rate", "alice", ""): 200.0,
        ("kafka_server_produce_quota", "alice", ""): 100.0,
        ("kafka_server_produce_throttles_total", "alice", ""): 1,
        ("kafka_server_produce_throttle_time_ms_total", "alice", ""): 10_000,
        ("kafka_server_controllermutation_tokens", "alice", ""): 7.0,
        ("kafka_server_controllermutation_quota", "alice", ""): 1.0,
        ("kafka_server_controllermutation_throttles_total", "alice", ""): 0,
        ("kafka_server_controllermutation_throttle_time_ms_total", "alice", ""): 0,
    }


def test_most_throttled_of_many_clients_are_shown():
    quotas = quotas_of({QuotaEntity(client_id=""): {"producer_byte_rate": 100.0}})
    for number in range(2 * SHOWN_MAX):
        quotas.begin("u", f"client-{number}", PRODUCE).throttle_ms(Request, 1000 + 10 * number)
    clients = {client_id for _, _, client_id in shown(quotas)}
    assert clients == {f"client-{number}" for number in range(SHOWN_MAX, 2 * SHOWN_MAX)}
