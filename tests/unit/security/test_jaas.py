"""Login settings in JAAS's form: what Java's login configuration accepts, and errors that never repeat a password."""

import pytest

from barnabas.security.jaas import JaasError, parse_jaas, parse_jaas_section

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_an_entry_has_a_module_and_options():
    entry = parse_jaas(f'{PLAIN} required username="a" password="b" user_admin="c d" user_bob="";')
    assert entry.module == PLAIN
    assert entry.module_name == "PlainLoginModule"
    assert entry.options == {"username": "a", "password": "b", "user_admin": "c d", "user_bob": ""}
    assert entry.users() == {"admin": "c d", "bob": ""}


def test_spaces_comments_and_unquoted_values_are_accepted():
    entry = parse_jaas(f"// a login\n{PLAIN}\n  Required /* all of it */ useKeyTab=true keyTab='/etc/k' ;\n")
    assert entry.options == {"useKeyTab": "true", "keyTab": "/etc/k"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [(r"a\"b", 'a"b'), (r"a\\b", "a\\b"), (r"a\nb", "a\nb"), (r"\101", "A"), ("a=b;c", "a=b;c")],
)
def test_quoted_values_have_escapes(written, meant):
    assert parse_jaas(f'{PLAIN} required user_x="{written}";').users() == {"x": meant}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("  ", "it is empty"),
        (PLAIN, "after the class is expected"),
        ("= required;", "the class of a login module is expected"),
        (f"{PLAIN} required", "it does not end with ;"),
        (f"{PLAIN} sometimes;", "is expected after the class of the login module"),
        (f'{PLAIN} required user_x="secret"', "it does not end with ;"),
        (f'{PLAIN} required user_x "secret";', "= is expected after the option user_x"),
        (f"{PLAIN} required user_x;", "= is expected after the option user_x"),
        (f"{PLAIN} required user_x", "= is expected after the option user_x"),
        (f"{PLAIN} required user_x=;", "a value of the option user_x is expected"),
        (f"{PLAIN} required user_x=", "a value of the option user_x is expected"),
        (f'{PLAIN} required ="secret";', "the name of an option, or ; at the end is expected"),
        (f'{PLAIN} required user_x="secret;', "belongs to no word"),
        (f'{PLAIN} required user_x="secret"; {PLAIN} required;', "something after the first ;"),
        (f"{PLAIN} required user_x=secret{{;", "the name of an option, or ; at the end is expected"),
    ],
)
def test_what_is_no_entry_is_refused_without_its_values(text, reason):
    with pytest.raises(JaasError) as refused:
        parse_jaas(text)
    assert reason in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_section_of_a_file_is_found_by_its_name():
    client = f'// both sides\nClient {{ {PLAIN} required username="a"; }};\n'
    text = f'{client}Server {{\n {PLAIN} required user_a="b;}}";\n}};\n'
    assert parse_jaas_section(text, "Server").users() == {"a": "b;}"}
    assert parse_jaas_section(text, "Client").options == {"username": "a"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no section Server"),
        (f"Client {{ {PLAIN} required; }};", "no section Server"),
        (f"Server {PLAIN} required;", "{ is expected"),
        (f"Server {{ {PLAIN} required;", "does not end with };"),
        (f"Server {{ {PLAIN} required; }}", "; is expected"),
        ("Server { };", "it is empty"),
        (f"Server {{ {PLAIN} required; {PLAIN} required; }};", "one login module"),
    ],
)
def test_a_file_without_the_section_says_what_is_missing(text, reason):
    with pytest.raises(JaasError, match=reason):
        parse_jaas_section(text, "Server")
