"""Messages to people: when a run waits for a person, or has ended.

`message` says what a message tells, `channels` carry it, `outbox` repeats what did not arrive, and
`notifier` sends what a host notices to the channels of `[notify]`. The server also sends each
person their own messages, with signed links (`server/messages.py`).
"""
