"""TLS.

The columns are explained in `barnabas.config.tables`.
"""

from __future__ import annotations

from barnabas.config.tables import Row

# fmt: off
ROWS: tuple[Row, ...] = (
    ("ssl.client.auth", "string", "none", "required|requested|none", "medium", "broker", "",
     "Whether clients must, may or need not show a certificate."),
    ("ssl.protocol", "string", "TLSv1.3", "", "medium", "broker", "",
     "TLS version to start from."),
    ("ssl.enabled.protocols", "list", "TLSv1.2,TLSv1.3", "", "medium", "broker", "",
     "TLS versions that are accepted."),
    ("ssl.cipher.suites", "list", "", "", "medium", "broker", "",
     "Cipher suites that are accepted; all when empty."),
    ("ssl.endpoint.identification.algorithm", "string", "https", "", "low", "broker", "cluster",
     "How a server's name is checked against its certificate; empty for not at all."),
    ("ssl.principal.mapping.rules", "string", "DEFAULT", "", "low", "", "",
     "How the name in a certificate becomes a principal."),
    ("ssl.key.password", "password", None, "", "medium", "broker", "",
     "Password of the private key."),
    ("ssl.keystore.location", "string", None, "", "medium", "broker", "",
     "File with the broker's key and certificate."),
    ("ssl.keystore.password", "password", None, "", "medium", "broker", "",
     "Password of that file."),
    ("ssl.keystore.type", "string", "JKS", "", "medium", "broker", "",
     "Format of that file."),
    ("ssl.keystore.key", "password", None, "", "medium", "broker", "",
     "The private key itself, as PEM."),
    ("ssl.keystore.certificate.chain", "password", None, "", "medium", "broker", "",
     "The certificates themselves, as PEM."),
    ("ssl.truststore.location", "string", None, "", "medium", "broker", "",
     "File with the certificates that are trusted."),
    ("ssl.truststore.password", "password", None, "", "medium", "broker", "",
     "Password of that file."),
    ("ssl.truststore.type", "string", "JKS", "", "medium", "broker", "",
     "Format of that file."),
    ("ssl.truststore.certificates", "password", None, "", "medium", "broker", "",
     "The trusted certificates themselves, as PEM."),
    ("ssl.allow.dn.changes", "boolean", "false", "", "low", "", "",
     "Whether a new keystore may have another distinguished name."),
    ("ssl.allow.san.changes", "boolean", "false", "", "low", "", "",
     "Whether a new keystore may have other alternative names."),
    ("ssl.engine.factory.class", "class", None, "", "low", "broker", "!jvm",
     "Class that makes TLS engines."),
    ("ssl.keymanager.algorithm", "string", "SunX509", "", "medium", "broker", "jvm",
     "Java's algorithm for keys."),
    ("ssl.trustmanager.algorithm", "string", "PKIX", "", "medium", "broker", "jvm",
     "Java's algorithm for trust."),
    ("ssl.provider", "string", None, "", "medium", "broker", "!jvm",
     "Java's provider of TLS."),
    ("ssl.secure.random.implementation", "string", None, "", "low", "broker", "jvm",
     "Java's source of random numbers."),
    ("security.providers", "string", None, "", "low", "", "!jvm",
     "Java's further security providers."),
)
# fmt: on
