"""The server's side of SASL: mechanisms, and where a connection stands in its login. Pure."""
