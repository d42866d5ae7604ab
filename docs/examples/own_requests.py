"""Send requests of the protocol by the client's connections."""

import trio

from barnabas.client import ResponseError, open_client
from barnabas.client.errors import check
from barnabas.testing import RunningBroker
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.describe_cluster import DescribeClusterRequest


async def main():
    async with RunningBroker() as broker, open_client(broker.bootstrap) as client:
        cluster = await client.ask(DescribeClusterRequest())
        print(len(cluster.brokers))
        response = await client.ask_controller(DeleteTopicsRequest(topic_names=["no-such"]), version_max=5)
        try:
            check(response.responses[0].error_code, "deleting no-such")
        except ResponseError as error:
            print(error)


trio.run(main)
