"""A broker in a thread of this process: seeds, a fault, a snapshot."""

from barnabas.testing import start_thread

with start_thread(
    seeds={"topics": {"orders": {"partitions": 2, "records": ["a", {"key": "k", "value": "b"}]}}}
) as broker:
    broker.set_offsets("billing", {"orders": {0: "latest"}})  # a group that has read something
    broker.fault("Produce topic=orders times=1 -> error=NOT_LEADER_OR_FOLLOWER")
    broker.snapshot("begin")
    broker.produce("orders", {"value": "c", "partition": 0, "headers": {"source": "test"}})
    print(len(broker.records("orders")), broker.committed("billing"))
    broker.restore("begin")
    print(len(broker.records("orders")))
