from leadhand.app.reader import Reader  # noqa
