"""What tests of programs that use a broker may import.

The rule: nothing here is needed to run a broker, and nothing a broker runs on imports it.
"""
