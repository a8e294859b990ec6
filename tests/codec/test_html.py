"""Pages from templates: text stays text, wherever it stands."""

import json
from html.parser import HTMLParser

import pytest
from jinja2 import UndefinedError

from leadhand.codec import html

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title></pre></style><b>",
    "{{ 7 * 7 }} {% raw %} {# x #}",
    "&lt;b&gt; &amp;",
    json.dumps({"</script>": "<!--"}),
]


class Parsed(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def made(source, **values):
    return html._environment("leadhand.audit").from_string(source).render(values)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("quote", ['"', "'"])
def test_text_stays_text_in_elements_and_attributes(text, quote):
    found = Parsed(
        made(f"<p title={quote}{{{{ text }}}}{quote}>{{{{ text | short }}}}</p>", text=text)
    )
    assert (found.tags, found.attributes, found.text) == (["p"], [("title", text)], text)


def test_what_hides_is_shown_without_a_word_in_the_template():
    assert (
        made("{{ text }}", text="pay\u202e\u200b\x07\n\tend") == "pay\\u202e\\u200b\\u0007\n\tend"
    )


def test_markup_of_a_macro_is_not_escaped_again():
    source = "{% macro bold(x) %}<b>{{ x }}</b>{% endmacro %}{{ bold(text) }}"
    assert made(source, text="<i>") == "<b>&lt;i&gt;</b>"


def test_a_long_text_is_cut():
    assert made("{{ text | short(5) }}", text="abcdefgh") == "abcd…"
    assert len(made("{{ text | short }}", text="x" * 10_000)) == html.TEXT_MAX


def test_a_name_that_is_not_given_is_an_error():
    with pytest.raises(UndefinedError, match="nothing_here"):
        made("{{ nothing_here }}")
