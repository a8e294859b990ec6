"""The models of a configuration: by name and by tier, each made when it is first asked for.

tiers = {"lead": ("anthropic:claude-opus-4-5",), "hand": ("small", "openai:gpt-5-mini")}
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from leadhand.core.wording import closest, listed
from leadhand.errors import UsageError
from leadhand.models.client import Client
from leadhand.models.messages import Model
from leadhand.models.names import (
    TIERS,
    ModelName,
    has_key,
    is_model_name,
    key_variable,
    parse_model,
)
from leadhand.models.provider import ProviderModel
from leadhand.models.recordings import Taped, current

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


Named = str | ModelName | Model


class ModelRegistry:
    """The models of a configuration, by name and by tier."""

    def __init__(
        self,
        tiers: Mapping[str, Sequence[str]] = {},
        models: Mapping[str, ModelName] = {},
    ) -> None:
        self.tiers = dict(tiers)
        self.models = dict(models)
        self._made: dict[str, Taped] = {}

    @classmethod
    def of(
        cls,
        models: ModelRegistry | Mapping[str, Named] | None = None,
        tiers: Mapping[str, Named | Sequence[Named]] | None = None,
    ) -> ModelRegistry:
        """Return a registry from Python values: models by name, tiers by one model or several."""
        if isinstance(models, ModelRegistry) and not tiers:
            return models
        known = models if isinstance(models, ModelRegistry) else cls()
        book = cls(known.tiers, known.models)
        for name, model in ({} if isinstance(models, ModelRegistry) else models or {}).items():
            book._put(name, model)
        for tier, given in (tiers or {}).items():
            book.tiers[tier] = tuple(book._word(each) for each in _several(given))
        return book

    def _put(self, word: str, model: Named) -> None:
        if isinstance(model, str):
            self.models[word] = parse_model(model, f"models.{word}")
        elif isinstance(model, ModelName):
            self.models[word] = model
        else:
            self._made[word] = Taped(model)

    def _word(self, model: Named) -> str:
        """Return the name of a model in a tier; register a model object under its own name."""
        if isinstance(model, str):
            return model
        word, number = str(model) if isinstance(model, ModelName) else model.name, 1
        while word in self._made or word in self.models:
            number += 1
            word = f"{word.partition('#')[0]}#{number}"
        self._put(word, model)
        return word

    def knows(self, word: str) -> bool:
        """Return whether `word` names a tier or a model."""
        return is_model_name(word, self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that is not written as `provider:model`."""
        return tuple(dict.fromkeys([*TIERS, *self.tiers, *self.models]))

    def refuse_unready(self, wanted: str) -> None:
        """Raise `UsageError` if a package or a key is missing, before a model is first used."""
        if current() is not None:
            return
        if find_spec("pydantic_ai") is None:
            raise UsageError(
                f"{wanted}: asking models needs packages that are not installed. "
                "Fix: pip install 'leadhand[models]', or play a tape with LEADHAND_TAPE=FILE."
            )
        known = [getattr(model, "known", None) for model in self.client(wanted).models]
        missing = [key_variable(name) for name in known if name is not None and not has_key(name)]
        if len(missing) == len(known):
            raise UsageError(
                f"{wanted}: no key is there. Fix: set {listed(dict.fromkeys(missing))} to yours, "
                "or play a tape with LEADHAND_TAPE=FILE."
            )

    def key_variables(self, wanted: str | Model | Client) -> list[str]:
        """Return the variables that hold the keys of `wanted` and of all tiers."""
        clients = [self.client(wanted), *(self.client(tier) for tier in self.tiers)]
        names = [getattr(model, "known", None) for each in clients for model in each.models]
        found = (key_variable(name) for name in names if name is not None)
        return [variable for variable in dict.fromkeys(found) if variable]

    def client(self, wanted: str | Model | Client) -> Client:
        """Return the client for a tier, a name of a model, or a model object."""
        if isinstance(wanted, Client):
            return wanted
        if not isinstance(wanted, str):
            return Client([wanted])
        if wanted in self.tiers:
            return Client([self._model(each) for each in self.tiers[wanted]], wanted)
        if wanted in TIERS:
            raise UsageError(
                f"the tier {wanted!r} has no model. Fix: name one in leadhand.toml, as in "
                f'[tiers] {wanted} = "anthropic:claude-sonnet-5".'
            )
        return Client([self._model(wanted)])

    def _model(self, word: str) -> Taped:
        if word not in self._made:
            name = self.models.get(word)
            if name is None and ":" not in word:
                known = [*self.tiers, *self.models]
                meant = closest(word, known)
                fix = f"Did you mean {meant}?" if meant else f"There are: {listed(known, 20)}."
                raise UsageError(f"no model is called {word!r}. {fix}")
            self._made[word] = Taped(ProviderModel(name or parse_model(word)))
        return self._made[word]


def _several(given: Named | Sequence[Named]) -> list[Named]:
    """Return a tier's models as a list; a `ModelName` is a tuple, and still one model."""
    several = isinstance(given, (list, tuple)) and not isinstance(given, ModelName)
    return list(cast("Sequence[Named]", given)) if several else [cast("Named", given)]
