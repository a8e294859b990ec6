"""Language models for planners and agents: one request, one answer, and its price.

    messages          requests, answers and usage, for every provider
    provider          a request to a real provider, through pydantic-ai; no retries of its own
    failures          errors of providers as our failure classes
    names, registry   `provider:model`, `provider:model@address`, tiers and configured models
    prices            the cost of tokens, and the maximum cost of a call
    meter             the payer: reserved before a call, settled after it
    client            all of that together: fallbacks, meter, record, spans
    recordings        recorded traffic, for tests without a provider
    secret_patterns   keeps texts that look like secrets from going to a model or out of one

Nothing here retries, plans or runs a tool. A failed call is a failure with a class, and the
recovery is decided with all other failures. pydantic-ai and the providers' packages are imported
when a model is first called, never before.
"""
