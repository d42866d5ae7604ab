"""`barnabas serve --demo-security`: a broker with TLS, users and ACLs, to try clients with."""
