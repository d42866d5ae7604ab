"""`python -m compat.debezium.loading`: loads of several topics in rounds, in one process with one session of Spark.

The rule: each argument is the command line of a load, as JSON; it goes on until it is killed.
"""

from __future__ import annotations

import json
import sys

from barnabas_pipeline.commands import common, lake
from barnabas_pipeline.jobs.follow import Follower
from barnabas_pipeline.spark import session


def main(given: list[str]) -> None:
    """Run the loads. Raises what the first of them raises that ends."""
    followers = []
    spark = session.create(
        "loads", master="local[2, 4]", conf={"spark.driver.memory": "1g", "spark.ui.enabled": "false"}
    )
    for text in given:
        parser = common.Parser()
        lake.add_load(parser)
        options = lake.load_options(parser.parse_args(json.loads(text)[1:]))
        followers.append(Follower(spark, options, trigger="1 second").start())
    while not any(one.wait(0.2) for one in followers):
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
