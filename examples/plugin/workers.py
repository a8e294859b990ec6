from leadhand import worker


@worker
def upper(letter: str) -> str:
    return letter.upper()
