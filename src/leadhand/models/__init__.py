"""Language models, as planners and agents see them: one question, one answer, and its price.

    talk        Request, Answer, Usage: what is said, whoever the provider is
    provider    a request to a real provider, through pydantic-ai; no retries of its own
    failures    what goes wrong, as our failure classes
    names       `provider:model`, `provider:model@address`, tiers and models of the configuration
    prices      what tokens cost, and what a call may cost at most
    meter       who pays: reserved before a call, settled after it
    client      all of that together: fallbacks, meter, record, spans
    cassette    traffic on tape, for tests without a provider
    guard       what looks like a secret does not go to a model, nor come out of one

Nothing here retries, plans or runs a tool. A failed call is a failure with a class, and what
follows is decided where every other failure is answered. pydantic-ai and the providers' packages
are imported when a model is first asked, never before.
"""
