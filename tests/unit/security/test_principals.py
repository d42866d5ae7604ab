"""Names of principals as Kafka makes them of certificates and of Kerberos principals."""

import pytest

from barnabas.security.principals import CertificateNames, KerberosNames, NameRuleError, subject_of
from tests.support.certificates import authority, signed


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ({"C": "DE", "O": "Castle", "OU": "Land", "CN": "alice"}, "CN=alice,OU=Land,O=Castle,C=DE"),
        ({"CN": "Cas, tle"}, r"CN=Cas\, tle"),
        ({"CN": 'a+b"c\\d<e>f;g#h=i'}, r"CN=a\+b\"c\\d\<e\>f\;g\#h\=i"),
        ({"CN": " a b  "}, r"CN=\ a b\ \ "),
        ({"CN": "zo\u00eb"}, "CN=zo\u00eb"),
        ({"DC": "com", "CN": "x"}, "CN=x,DC=com"),
        ({"CN": "x", "E": "a@b.c"}, "1.2.840.113549.1.9.1=#1605614062 2e63,CN=x".replace(" ", "")),
    ],
)
def test_a_certificates_name_is_that_of_java(subject, name):
    assert subject_of(signed(subject, authority()).der) == name


@pytest.mark.parametrize("size", [0, 1, 2, 10, 40, 60])
def test_what_is_no_certificate_has_no_name(size):
    with pytest.raises(ValueError, match="certificate"):
        subject_of(authority().der[:size])


DN = "CN=Alice,OU=ServiceUsers,O=Unknown,C=DE"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", DN),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Alice"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT", "alice"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/U", "ALICE@SERVICEUSERS"),
        ("RULE:^CN=nobody.*$/x/, RULE:^CN=(.*?),.*$/$1@$3/", "Alice@$3"),
        (r"RULE:^CN=(.*?),.*$/a\/$1/,DEFAULT", "a/Alice"),
        ("RULE:^CN=(.*?),.*$/$12/", "Alice2"),
    ],
)
def test_rules_name_certificates(rules, name):
    assert CertificateNames(rules).name_of(DN) == name


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [("^CN=(?!root)(.*)$", "it looks ahead or behind"), (r"^CN=(.*),OU=\1$", "it refers back to a group")],
)
def test_a_rule_that_re2_cannot_do_is_refused_with_a_reason(pattern, reason):
    with pytest.raises(NameRuleError, match=reason):
        CertificateNames(f"RULE:{pattern}/$1/")
    with pytest.raises(NameRuleError, match=reason):
        KerberosNames([f"RULE:[1:$1]s/{pattern}/x/"], "REALM")


def test_rules_match_names_in_linear_time():
    names = CertificateNames("RULE:^CN=(([a-z]|[a-z][a-z])*)!$/$1/,DEFAULT")
    assert names.name_of("CN=" + "a" * 10_000) == "CN=" + "a" * 10_000


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        (" DEFAULT , RULE:^.*$/x/", DN),
        ("RULE:^CN=([a-zA-Z]{1,9}),.*$/$1,x/ ,DEFAULT", "Alice,x"),
        (",,RULE:^CN=(.*?),OU.*$/$1/U,", "ALICE"),
        (r"RULE:^CN=(.*?),OU.*$/a\,\/$1/", "a,/Alice"),
    ],
)
def test_rules_stand_between_commas(rules, name):
    assert CertificateNames(rules).name_of(DN) == name


def test_a_certificate_without_a_rule_has_no_name():
    with pytest.raises(NameRuleError, match="no rule"):
        CertificateNames("RULE:^CN=nobody$/x/").name_of(DN)


@pytest.mark.parametrize(
    "rules", ["RULE:a", "RULE:a/b", "RULE:a/b/X", "LOWER", "RULE:(/b/", "DEFAULT,nonsense"]
)
def test_malformed_rules_are_refused(rules):
    with pytest.raises(NameRuleError):
        CertificateNames(rules)


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        (["DEFAULT"], "alice@REALM", "alice"),
        (["DEFAULT"], "alice/host@REALM", "alice"),
        (["DEFAULT"], "alice", "alice"),
        (["RULE:[1:$1]"], "alice@OTHER", "alice"),
        (["RULE:[2:$1_$2]", "DEFAULT"], "App/host@OTHER", "App_host"),
        (["RULE:[2:$1](App.*)s/X(.*)/$1/g/L", "DEFAULT"], "AppXHost/h@OTHER", "apphost"),
        (["RULE:[1:$1@$0](.*@OTHER)s/@.*//", "DEFAULT"], "bob@OTHER", "bob"),
        (["RULE:[1:$1]/U"], "bob@OTHER", "BOB"),
        (["RULE:[1:$1](Job\\..*)s/Job\\.(.*)/$1/g", "DEFAULT"], "Job.nightly@REALM", "nightly"),
        (["RULE:[2:$1](Job\\..*)s/Job\\.(.*)/$1/g", "DEFAULT"], "Job.nightly/h.example@REALM", "nightly"),
        (["RULE:[2:$1](Job\\..*)s/Job\\.(.*)/$1/g", "DEFAULT"], "carol/h.example@REALM", "carol"),
        (["RULE:[2:$1](aXa.*)s/a/b/", "DEFAULT"], "aXaX/h@REALM", "bXaX"),
        (["RULE:[2:$1](aXa.*)s/a/b/g/U", "DEFAULT"], "aXaX/h@REALM", "BXBX"),
        (["RULE:[2:$1](Test.*)s/ABC///L"], "TestABC/h@OTHER", "test"),
        (["RULE:[1:user-$1.of.$0]"], "bob@OTHER", "user-bob.of.OTHER"),
        (["RULE:[1:fixed]"], "bob@OTHER", "fixed"),
        (["RULE:[2:$2]", "DEFAULT"], "bob@REALM", "bob"),
        (["DEFAULT"], "a/b/c", "a/b/c"),
        (["RULE:[1:$1@$0](.*@OTHER)", "RULE:[1:not-$1]"], "bob@REALM", "not-bob"),
        (["RULE:[1:$1](a.*)", "RULE:[1:not-$1]"], "bob@REALM", "not-bob"),
        (["RULE:[1:$1](b)", "RULE:[1:not-$1]"], "bob@REALM", "not-bob"),
        (["RULE:[2:$1]", "RULE:[1:one-$1]"], "bob@REALM", "one-bob"),
    ],
)
def test_rules_name_kerberos_principals(rules, principal, name):
    assert KerberosNames(rules, "REALM").name_of(principal) == name


def test_kerberos_principal_of_four_parts_has_no_name():
    names = KerberosNames(["RULE:[1:$1]", "RULE:[2:$1]", "DEFAULT"], "REALM")
    for principal in ("alice/host/more@REALM", "alice@host@REALM", "alice\\@x@REALM", "alice/a@b/c@REALM"):
        with pytest.raises(NameRuleError, match="NAME/HOST@REALM"):
            names.name_of(principal)


@pytest.mark.parametrize(
    "rule", ["RULE:[1:$1@$0]", "RULE:[1:$a]", "RULE:[1:$]", "RULE:[1:$2]", "RULE:[1:$1](.*)s/a/$3/"]
)
def test_inapplicable_rule_lets_no_principal_in(rule):
    with pytest.raises(NameRuleError):
        KerberosNames([rule, "DEFAULT"], "REALM").name_of("alice@REALM")


@pytest.mark.parametrize("rules", [["DEFAULT"], ["RULE:[2:$1]"], ["RULE:[1:$1@$0]"], ["RULE:[1:$5]"]])
def test_a_kerberos_principal_without_a_rule_has_no_name(rules):
    with pytest.raises(NameRuleError):
        KerberosNames(rules, "REALM").name_of("alice@OTHER")


@pytest.mark.parametrize(
    "rule",
    [
        "", "RULE", "RULE:[x:$1]", "RULE:[:$1]", "RULE:[1:$1](", "RULE:[1:$1](()s/a/b/", "default", "DEFAUL", "DEFAULT/L",
        "DEFAULT/g", "rule:[1:$1]", "RULE:[1:$1]/L/U", "RULE:[1:$1]/LU", "RULE:[1:$1/L", "RULE:[1:$1]/l",
        "RULE:[2:$1](a.*)s/a/b/L/g", "RULE:[1:$1] ",
    ],
)  # fmt: skip
def test_malformed_kerberos_rules_are_refused(rule):
    with pytest.raises(NameRuleError):
        KerberosNames([rule], "REALM")


@pytest.mark.parametrize("character", ["\n", "\r", "\t", "\x1b", "\x7f", "\x85", "\u2028"])
@pytest.mark.parametrize("rules", ["DEFAULT", r"RULE:^CN=((?s:.*))$/$1/"])
def test_certificate_with_a_control_character_names_nobody(character, rules):
    subject = subject_of(signed({"CN": f"alice{character}User:root"}, authority()).der)
    with pytest.raises(NameRuleError, match="control character"):
        CertificateNames(rules).name_of(subject)
