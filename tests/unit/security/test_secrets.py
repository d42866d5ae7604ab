"""Secrets that are planted wherever a broker gets some, and searched in all that it says."""

import logging
from base64 import b64encode

import pytest

from barnabas.cli import main
from barnabas.cluster.metadata.image import BROKER
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.config import tables
from barnabas.config.loading import BrokerConfig
from barnabas.config.without_effect import judge
from barnabas.security import scram
from barnabas.wire.generated.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from barnabas.wire.generated.describe_configs import DescribeConfigsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.support.broker import broker_to_ask

SECRET = "hunter2-swordfish"
PASSWORDS = [name for name in tables.names() if tables.setting(name).sensitive]
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{SECRET}";'
OF_A_LISTENER = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


def test_whatever_is_a_secret_in_kafka_is_one_here():
    assert {
        "sasl.jaas.config", "delegation.token.secret.key", "delegation.token.master.key", "ssl.key.password",
        "ssl.keystore.password", "ssl.truststore.password", "ssl.keystore.key", "ssl.keystore.certificate.chain",
        "ssl.truststore.certificates", "sasl.oauthbearer.client.credentials.client.secret",
        "zookeeper.ssl.keystore.password", "zookeeper.ssl.truststore.password",
    } <= set(PASSWORDS)  # fmt: skip
    assert tables.find(OF_A_LISTENER).sensitive


@pytest.mark.parametrize("name", [*PASSWORDS, OF_A_LISTENER])
def test_stopping_setting_is_not_shown_with_its_secret(name):
    config = BrokerConfig({name: SECRET}, {name: "FILE:1"})
    verdict = judge(config, {name: "FILE:1"})
    assert SECRET not in repr((verdict.refusals, verdict.ignored, config))


@pytest.mark.parametrize(
    "wrong",
    [
        f"{OF_A_LISTENER}={SECRET}", f'{OF_A_LISTENER}=PlainLoginModule required user_alice="{SECRET}',
        f"ssl.keystore.key={SECRET}", f"delegation.token.secret.keys={SECRET}",
    ],
)  # fmt: skip
def test_a_start_that_fails_does_not_say_the_secret(tmp_path, capfd, wrong):
    listener = "listeners=SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
    options = "--set", listener, "--set", "sasl.enabled.mechanisms=PLAIN", "--set", wrong
    assert main(["serve", "--data", str(tmp_path), "--log-level", "debug", *options]) != 0
    output = capfd.readouterr()
    assert output.err
    assert SECRET not in output.out + output.err


async def test_a_broker_shows_its_secrets_to_nobody(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    settings = {
        OF_A_LISTENER: JAAS, "delegation.token.secret.key": SECRET, "sasl.enabled.mechanisms": "PLAIN",
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    }  # fmt: skip
    async with broker_to_ask(tmp_path, settings) as asked:
        shown = [*await alter_password(asked), *await describe_all(asked), await add_user(asked)]
        shown += [asked.services.config, asked.services.metadata.image, asked.services.delegation_tokens]
        assert SECRET not in repr(shown)
        salted = scram.salted_password(scram.SCRAM_SHA_256, SECRET, b"salt", 4096)
        kept = asked.services.metadata.image.scram["alice"]["SCRAM-SHA-256"]
        for secret in (salted, kept.stored_key, kept.server_key):
            for text in (repr(secret)[2:-1], b64encode(secret).decode(), secret.hex()):
                assert text not in repr(shown)
                assert text not in caplog.text
    assert SECRET not in caplog.text


async def describe_all(asked):
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=BROKER, resource_name=name, configuration_keys=None
        )
        for name in ("1", "")
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    answer = await asked(request, 4)
    entries = {entry.name: entry for entry in answer.results[0].configs}
    for name in (OF_A_LISTENER, "delegation.token.secret.key"):
        assert (entries[name].value, entries[name].is_sensitive) == (None, True)
        assert all(synonym.value is None for synonym in entries[name].synonyms)
    return answer.results


async def alter_password(asked):
    """The answers to alterations of secrets, right and wrong ones."""
    answers = []
    for name in (OF_A_LISTENER, "delegation.token.secret.key", "ssl.keystore.key", "ssl.key.password"):
        for operation in (0, 2):
            config = IncrementalAlterConfigsRequest.AlterableConfig(
                name=name, config_operation=operation, value=SECRET
            )
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=BROKER, resource_name="1", configs=[config]
            )
            answers.append(await asked(IncrementalAlterConfigsRequest(resources=[resource]), 1))
    return answers


async def add_user(asked):
    salted = scram.salted_password(scram.SCRAM_SHA_256, SECRET, b"salt", 4096)
    upsertions = [
        AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=user, mechanism=mechanism, iterations=4096, salt=b"salt", salted_password=salted
        )
        for user, mechanism in (("alice", 1), ("bob", 9))
    ]
    answer = await asked(AlterUserScramCredentialsRequest(upsertions=upsertions), 0)
    assert {result.error_code for result in answer.results} == {0, ErrorCode.UNSUPPORTED_SASL_MECHANISM}
    return answer


@pytest.mark.parametrize("path", ["/config/users/alice", "/config/brokers/1", "/delegation_token/tokens/t"])
def test_a_znode_that_cannot_be_read_is_named_and_not_shown(path):
    for data in (f'{{"config":"{SECRET}"}}', f'{{"version":1,"{SECRET}', f'["{SECRET}"]'):
        with pytest.raises(ZnodeError, match=path) as caught:
            resources.decode_config(path, data.encode())
        assert SECRET not in str(caught.value)
