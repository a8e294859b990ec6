"""What looks like a secret is taken out, and what does not is left alone."""

import json
import time

import pytest

from leadhand.models.secret_patterns import MARK, finds, scrub, scrubbed

SECRETS = {
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "anthropic": "sk-ant-api03-" + "x" * 40,
    "openai": "sk-proj-" + "Ab1" * 12,
    "github": "ghp_" + "a1B2" * 9,
    "fine grained": "github_pat_" + "11AAAA_" + "b" * 30,
    "gitlab": "glpat-" + "x" * 20,
    "slack": "xoxb-" + "123456789012-abcdef",
    "google": "AIza" + "SyA1" * 9,
    "stripe": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcDEF123456_-x",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----",
    "half a private key": "-----BEGIN PRIVATE KEY-----\nMIIEabc",
    "address": "postgres://user:hunter2pass@db.example/x",
    "variable": "API_KEY=9f8e7d6c5b4a3210",
    "json": '{"password": "Tr0ub4dor&3xyz"}',
    "header": "Authorization: Bearer abcdef0123456789abcdef",
}

PLAIN = [
    "The password must be at least twelve characters long.",
    "token: the smallest unit a model reads",
    "see https://example.org/a:b/c and mail me@example.org",
    "sk-learn and skip-this-step are words",
    "commit 3f2c9a1b7d5e8f60a1b2c3d4e5f60718293a4b5c",
    "uuid 123e4567-e89b-12d3-a456-426614174000",
]


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_goes(name):
    secret = SECRETS[name]
    text = f"before {secret} after"
    assert MARK in scrub(text)
    core = (
        "hunter2pass"
        if name == "address"
        else max(secret.replace('"', " ").replace("=", " ").split(), key=len)[-10:]
    )
    assert core not in scrub(text)
    assert finds({"a": [text]})
    assert scrub(text).startswith("before")


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_stays(text):
    assert scrub(text) == text
    assert not finds([text])


def test_data_is_looked_through():
    value = {"a": [1, None, True, SECRETS["aws"]], SECRETS["github"]: 2.5}
    assert scrubbed(value) == {"a": [1, None, True, MARK], MARK: 2.5}


def test_a_long_text_is_looked_through_quickly():
    text = "password: " * 20_000 + "a" * 200_000
    assert scrub(text) == text


def test_json_within_json_is_looked_through():
    inner = json.dumps({"password": "Tr0ub4dor&3xyz"})
    assert "Tr0ub4dor" not in scrub(json.dumps({"log": inner}))
    assert "Tr0ub4dor" not in scrub(json.dumps([json.dumps({"log": inner})]))


TIRING = ("token=", "eyJabcdefghijk-", "secret_", "-----BEGIN A", "://a:b", "sk-a ", "bearer:")


@pytest.mark.parametrize("word", TIRING)
def test_nothing_keeps_it_busy(word):
    def took(size):
        text = word * (size // len(word))
        began = time.process_time()
        scrub(text)
        return time.process_time() - began

    assert took(300_000) < 5  # By the square of the length, some of these took four minutes.
