"""Models for tests of agents: answers one after the other, the last one for ever."""

import asyncio

from leadhand.testing import HANG, ScriptedModel
from leadhand.testing.models import Calls


def calls(tool, arguments=None, /, **more):
    """An answer that calls one tool."""
    return Calls((tool, more if arguments is None else arguments))


def several(*answers):
    """Several calls in one answer."""
    return Calls(*(call for each in answers for call in each))


def model(answers, **more):
    """A model that gives these; a function is asked with the request."""
    heard = []

    async def following(request):
        heard.append(request)
        said = answers[min(len(heard), len(answers)) - 1]
        if callable(said) and said is not HANG:
            said = said(request)
        if said is HANG:
            await asyncio.get_running_loop().create_future()
        return said

    return ScriptedModel(following, **more)
