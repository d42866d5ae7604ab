"""`barnabas tap` and `barnabas replay`: what clients and brokers say to each other, shown, kept, and sent again.

The rule: what passes is forwarded as it is, whether it can be decoded or not; only addresses of brokers are changed.
"""
