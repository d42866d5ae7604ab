"""Counting requests: errors wherever a response has them, bytes by topic, and nothing that grows without end."""

from barnabas.serving import apis
from barnabas.serving.meter import RequestMeter, count_error_codes, places_of
from barnabas.wire import registry
from barnabas.wire.generated.api_versions import ApiVersionsResponse
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.metadata import MetadataResponse
from barnabas.wire.generated.produce import ProduceResponse

TOPIC_ID = b"t" * 16


def produced(*codes):
    partition = ProduceResponse.PartitionProduceResponse
    topic = ProduceResponse.TopicProduceResponse(
        partition_responses=[partition(error_code=code) for code in codes]
    )
    return ProduceResponse(responses=[topic])


def fetched(records, topic="", topic_id=bytes(16)):
    partition = FetchResponse.PartitionData(records=records)
    answered = FetchResponse.FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[partition])
    return FetchResponse(responses=[answered])


def test_every_place_of_an_error_code_counts():
    assert count_error_codes(ApiVersionsResponse(error_code=35)) == {35: 1}
    assert count_error_codes(produced(0, 0, 3)) == {0: 2, 3: 1}
    assert count_error_codes(fetched(b"")) == {0: 2}
    topics = [
        MetadataResponse.MetadataResponseTopic(
            error_code=5, partitions=[MetadataResponse.MetadataResponsePartition(error_code=9)]
        )
    ]
    assert count_error_codes(MetadataResponse(topics=topics)) == {0: 1, 5: 1, 9: 1}


def test_a_place_can_be_found_in_every_response_that_is_served():
    without = {
        api.name
        for api in apis.BY_KEY.values()
        if "error_code" in source_of(api.key) and not any_place(registry.response_codec(api.key).message)
    }
    assert without == set()


def source_of(key):
    message = registry.response_codec(key).message
    names = set(message.__slots__)
    for value in vars(message).values():
        if isinstance(value, type) and hasattr(value, "__slots__"):
            names |= set(value.__slots__)
    return names


def any_place(message):
    places = places_of(message)
    return places.here or bool(places.inside)


def test_fetched_bytes_are_counted_by_topic_named_or_by_id():
    meter = RequestMeter({TOPIC_ID: "known"}.get)
    meter.fetched(fetched(b"12345", topic="named"))
    meter.fetched(fetched(b"123", topic_id=TOPIC_ID))
    meter.fetched(fetched(b"123", topic_id=TOPIC_ID))
    meter.fetched(fetched(b"123", topic_id=b"x" * 16))
    meter.fetched(fetched(None, topic="nothing"))
    assert meter.fetched_bytes == {"named": 5, "known": 6}
    meter.forget_topics({"known"}.__contains__)
    assert meter.fetched_bytes == {"known": 6}
