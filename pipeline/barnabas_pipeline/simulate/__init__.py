"""A simulated site: page views, clicks, votes, logins and service metrics, with the truth about them.

The rule: everything follows from the seed. The same seed gives the same events, byte for byte, and the same truth.
"""
