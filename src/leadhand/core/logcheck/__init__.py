"""The independent checker behind `leadhand verify`. Shares no code with `state` and `decide`."""
