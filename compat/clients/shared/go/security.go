package harness

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
)

// Security is how a client is to connect, as the environment says: without TLS and logins where it says nothing.
type Security struct {
	// Mechanism is that of SASL, empty without it.
	Mechanism, User, Password string
	// Token is that of OAUTHBEARER.
	Token string
	// Keytab, Realm and KerberosConfig are for GSSAPI: the file with the user's key, and the krb5.conf.
	Keytab, Realm, KerberosConfig string
	// TLS is nil without it.
	TLS *tls.Config
}

// SecurityOfEnvironment reads the variables that the README lists. Ends the process where a file cannot be read.
func SecurityOfEnvironment() Security {
	protocol := os.Getenv("COMPAT_SECURITY_PROTOCOL")
	found := Security{
		User: os.Getenv("COMPAT_SASL_USER"), Password: os.Getenv("COMPAT_SASL_PASSWORD"), Token: os.Getenv("COMPAT_SASL_TOKEN"),
	}
	if keytab := os.Getenv("COMPAT_SASL_KEYTAB"); keytab != "" {
		found.Keytab, found.KerberosConfig = keytab, os.Getenv("KRB5_CONFIG")
		found.User, found.Realm, _ = strings.Cut(found.User, "@")
	}
	if strings.HasPrefix(protocol, "SASL_") {
		found.Mechanism = os.Getenv("COMPAT_SASL_MECHANISM")
	}
	if strings.HasSuffix(protocol, "SSL") {
		authorities := x509.NewCertPool()
		authorities.AppendCertsFromPEM(Got(os.ReadFile(os.Getenv("COMPAT_SSL_CA"))))
		found.TLS = &tls.Config{RootCAs: authorities}
		if certificate := os.Getenv("COMPAT_SSL_CERTIFICATE"); certificate != "" {
			pair := Got(tls.LoadX509KeyPair(certificate, os.Getenv("COMPAT_SSL_KEY")))
			found.TLS.Certificates = []tls.Certificate{pair}
		}
	}
	return found
}
