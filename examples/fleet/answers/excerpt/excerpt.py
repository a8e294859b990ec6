"""The place in a text where a word stands."""

LENGTH = 60


def excerpt(text: str, word: str) -> str:
    """At most 60 characters around the word, with … where something is left out."""
    at = max(0, text.lower().find(word.lower()))
    start = max(0, min(at - LENGTH // 3, len(text) - LENGTH))
    end = start + LENGTH
    return ("…" if start else "") + text[start:end].strip() + ("…" if end < len(text) else "")
