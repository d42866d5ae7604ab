"""`barnabas tap` and `barnabas replay`: traffic between clients and brokers, shown, recorded and replayed.

The rule: traffic is forwarded unchanged, whether or not it can be decoded; only addresses of brokers are rewritten.
"""
