"""A console in the browser, which shows a cluster and its content, and changes them.

The rule: it is a client like any other. It uses Kafka's protocol, as the logged-in user; a broker in the same process
adds its own views through one interface, `live.Live`. Nothing here is imported before the first request.
"""
