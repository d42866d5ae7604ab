"""Settings in the words of the Java client."""

from barnabas.client import ClientSettings

settings = ClientSettings.of(
    {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "reader",
        "sasl.password": "secret",
    }
)
print(settings.sasl.mechanism)
