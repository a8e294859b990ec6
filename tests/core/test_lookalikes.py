"""What a reviewer reads: look-alikes are escaped, words of other alphabets stay readable."""

import pytest

from leadhand.cli.rendering.text import clean, clean_lines
from leadhand.core.review.view import lookalikes
from leadhand.core.visible import escape_deceptive, visible, visible_key
from tests.codec.test_html import made


def in_html(text):
    return made("{{ text }}", text=text)


ESCAPED = (
    # Of the report: 26 of 28 were shown raw.
    "\u0441\u043e\u0440\u0443",  # copy, all Cyrillic
    "\u0440\u0430\u0443",  # pay
    "adm\u0131n",
    "\u0251dmin",
    "r\u101d\u101dt",
    "bank\u2024com",
    "\u2212rf",
    "\u212a8s",  # the Kelvin sign
    "a\u217cl",
    "e\u0301",
    "caf" + "e\u0301",
    "p\u0430ypal",
    "\uff41\uff44\uff4d\uff49\uff4e",  # fullwidth
    "\U0001d41a\U0001d41d\U0001d426\U0001d422\U0001d427",  # mathematical
    "\u0455\u0455h",
    "\u0455\u0441\u0430",
    "r\u043e\u043et",
    "\u03bfpenssl",
    "prod\u200b",
    "\u202egnp.exe",
    "dele\u00adte",
    "\ufeffrun",
    "a\u00a0b",
    "x\u2060y",
    "\u2066x\u2069",
    "aws\u3164key",
    "\u13a0\u13a1",  # Cherokee
    "\u0391\u0392",  # Greek capitals
    # Others of each sort.
    "git\u2010hub",
    "\u2013rf",
    "\u2014force",
    "/etc\u2215passwd",
    "/etc\u2044passwd",
    "http\uff1a//x",
    "a\u037eb",
    "v\uff11",
    "ﬁle",
    "x\u00b2",
    "\u0456d",
    "\u0501eploy",
    "\u217f",
    "\u2170p",
    "\u0399D",
    "o\u0338k",
    "a\u20ddb",
    "\u0430dmin \u0438 \u0434\u0440\u0443\u0433\u0438\u0435",
    "\u0437\u0430\u043f\u0443\u0441\u043a \u0441\u043e\u0440\u0443",
    "\u0441",  # one letter, alone
    "user_\u0430",
    "\u04cf",
    "\u2066",
    "key\U000e0041",
    "\u2800",
    "a\u034fb",
    "\u1d00dmin",
    "release-\u0432\u0435\u0440\u0441\u0438\u044f",  # two alphabets in one name
    "\u043e\u0431\u043d\u043e\u0432\u043b\u0435\u043d\u0438\u0435-v2",
)
PLAIN = (
    "plain words, v1.2 --force /etc/passwd",
    "Größe der Straße überprüfen",
    "façade, naïve, crème brûlée",
    "señor, mañana, ¿qué?",
    "Łódź, čeština, žluťoučký kůň",
    "smørrebrød være æble œuvre",
    "İstanbul ğüşö",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!",  # Russian
    "\u0421\u043a\u043e\u043f\u0438\u0440\u043e\u0432\u0430\u0442\u044c \u0444\u0430\u0439\u043b \u0441 \u0434\u0438\u0441\u043a\u0430",  # noqa: E501
    "\u041f\u0435\u0440\u0435\u0432\u0456\u0440\u0438\u0442\u0438",  # Ukrainian
    "\u03ba\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 \u03ba\u03cc\u03c3\u03bc\u03b5",  # Greek
    "部署到生产环境",
    "先备份\uff0c再部署\uff1a确认\uff01",
    "こんにちは、デプロイします。",
    "프로덕션에 배포",
    "שלום עולם",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "it\u2019s done \u2013 \u201creally\u201d \u2014 yes\u2026",
    "2024\u20132025",
    "5 € per 10 °C → ✓",
    "emoji 🚀 and ☃",
    "\u0437\u0430\u043f\u0443\u0441\u0442\u0438\u0442\u044c deploy \u043d\u0430",
)


def test_the_table_is_long_enough():
    """At least 60 strings, those of the field report among them."""
    assert len(ESCAPED) + len(PLAIN) >= 60


@pytest.mark.parametrize("text", ESCAPED, ids=ascii)
def test_what_passes_for_something_else_is_escaped(text):
    """On the terminal, in a review, in a key, in the export, and in what the API and page show."""
    assert "\\u" in visible(text).lower()
    assert "\\u" in escape_deceptive(text).lower()
    assert "\\u" in visible_key(text).lower()
    for shown in (clean(text), clean_lines(text), in_html(text)):
        assert text not in shown
    [line] = lookalikes({}, [{"id": "ship", "worker": "w", "parameters": {"to": text}}])
    assert "steps.ship.parameters.to: " in line
    assert "\\u" in line.lower()


@pytest.mark.parametrize("text", PLAIN, ids=ascii)
def test_words_of_other_alphabets_stay_readable(text):
    """Exactly as they are."""
    assert escape_deceptive(text) == text
    assert visible(text) == f'"{text}"'
    assert clean(text) == text
    assert lookalikes({"goal": text}, []) == []


def test_a_short_word_is_readable_beside_clear_ones_only():
    """A Russian preposition in a Russian sentence; alone it could be a Latin letter."""
    assert (
        escape_deceptive("\u0441 \u0434\u0438\u0441\u043a\u0430")
        == "\u0441 \u0434\u0438\u0441\u043a\u0430"
    )
    assert escape_deceptive("\u0441 disk") == "\\u0441 disk"
    assert (
        escape_deceptive("key=\u0441 \u0434\u0438\u0441\u043a")
        == "key=\\u0441 \u0434\u0438\u0441\u043a"
    )
