"""What tests of programs that use a broker may import: `RunningBroker`, a broker for the length of a block.

The rule: nothing here is needed to run a broker, and nothing a broker runs on imports it.
"""

from barnabas.testing.running import BrokerFailedError, RunningBroker

__all__ = ["BrokerFailedError", "RunningBroker"]
