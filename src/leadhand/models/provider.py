"""One request to a real provider, through pydantic-ai.

Always streamed: a long answer shows that it is coming, and a truncated one is known by its missing
end. Nothing is retried here, neither by us nor by the provider's package: the run decides the
recovery of a failure, where it is counted and recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec

from leadhand.errors import UsageError
from leadhand.models.answer_json import arguments, clean, data_in, decode_json
from leadhand.models.failures import ModelFailure, of_provider
from leadhand.models.messages import (
    AssistantMessage,
    Listener,
    ModelAnswer,
    ModelRequest,
    Result,
    ToolCall,
    Usage,
    UserMessage,
)
from leadhand.models.names import key_variable
from leadhand.models.secret_patterns import MARK

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponse
    from pydantic_ai.models import Model as ProviderClient
    from pydantic_ai.models import ModelRequestParameters

    from leadhand.models.names import ModelName


# Schemas that a provider enforces, and the parts that strict providers cannot.
#
# Some providers (Anthropic's native output) take closed forms only: every object names all of its
# properties, every value has a type. A form with open parts, such as the parameters of a step,
# would come back with those parts empty. `is_open` finds such forms. `closed` writes their open
# parts as JSON in a text, and `opened` reads an answer back.
#
#     {"parameters": {"type": "object"}}   →   {"parameters": {"type": "string"}}   '{"city":
# "Bern"}'


AS_TEXT = {"type": "string", "description": "any JSON value, written as JSON in this text"}
TYPED = frozenset({"type", "enum", "const", "$ref"})
CHOICES = ("anyOf", "oneOf", "allOf")
DEFINITIONS = ("$defs", "definitions")


def is_open(schema: Mapping[str, Any]) -> bool:
    """Return whether any part of a schema allows properties or values that it does not name."""
    return bool(close_schema(schema) != schema)


def close_schema(schema: Any) -> Any:
    """Return the same schema with its open parts as JSON in a text."""
    if _open_here(schema):
        return AS_TEXT
    made = dict(schema)
    if isinstance(made.get("properties"), dict):
        made["properties"] = {name: close_schema(each) for name, each in made["properties"].items()}
    if "items" in made:
        made["items"] = close_schema(made["items"])
    for word in DEFINITIONS:
        if isinstance(made.get(word), dict):
            made[word] = {name: close_schema(each) for name, each in made[word].items()}
    return made


def open_answer(data: Any, schema: Any, root: Any = None) -> Any:
    """Convert an answer to a closed schema back into an answer to the schema itself.

    A text that should be JSON and is not stays as it is: the check against the schema reports it.
    """
    root = schema if root is None else root
    if _open_here(schema):
        return _value(data)
    if isinstance(schema.get("$ref"), str):
        return open_answer(data, _resolved(schema["$ref"], root), root)
    if isinstance(data, dict) and isinstance(schema.get("properties"), dict):
        known = schema["properties"]
        return {k: open_answer(v, known[k], root) if k in known else v for k, v in data.items()}
    if isinstance(data, list) and "items" in schema:
        return [open_answer(each, schema["items"], root) for each in data]
    return data


def _open_here(schema: Any) -> bool:
    """Return whether this part of a schema is itself open, not one that it contains."""
    if not isinstance(schema, dict):
        return True  # `true` takes everything
    choices = [each for word in CHOICES for each in schema.get(word, ())]
    if choices:
        return any(_open_here(each) or is_open(each) for each in choices)
    if TYPED.isdisjoint(schema):
        return True
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if "object" in kinds:
        more = schema.get("additionalProperties", False)
        return not schema.get("properties") or more is not False or "patternProperties" in schema
    return "array" in kinds and not isinstance(schema.get("items"), dict)


def _value(data: Any) -> Any:
    if not isinstance(data, str):
        return data
    try:
        return decode_json(data)
    except msgspec.DecodeError:
        return data


def _resolved(ref: str, root: Any) -> Any:
    found = root
    for word in ref.removeprefix("#").strip("/").split("/"):
        found = found.get(word, AS_TEXT) if isinstance(found, dict) and word else found
    return found if found is not root else AS_TEXT


ANSWER_CHARS_MAX = 2_000_000
"""An answer longer than this is cut off by us: no model is asked for that much."""
KEY_CHARS_MIN = 8
DATA_TOOL = "answer"
"""The tool whose arguments are the data, where a model has no better way to keep to a form."""

CACHE_BLOCKS = (
    "anthropic_cache_instructions",
    "anthropic_cache_tool_definitions",
    "anthropic_cache_messages",
)


class ProviderModel:
    """A model at a provider. Its client is made for the event loop that first asks."""

    def __init__(self, name: ModelName) -> None:
        self.name = str(name)
        self.known = name
        self._clients: WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[ProviderClient, AsyncGenerator[None, None]]
        ] = WeakKeyDictionary()

    async def ask(self, request: ModelRequest, heard: Listener | None = None) -> ModelAnswer:
        """Return the complete answer. Raise `ModelFailure` if there is none."""
        try:
            return await self._ask(request, heard)
        except ModelFailure as failure:
            raise self._without_key(failure) from None

    def _without_key(self, failure: ModelFailure) -> ModelFailure:
        """Remove our key from a failure's message: some servers quote the key that they refuse."""
        key = os.environ.get(key_variable(self.known) or "", "")
        if len(key) < KEY_CHARS_MIN or key not in f"{failure}{failure.text}":
            return failure
        return ModelFailure(
            failure.failure_class,
            str(failure).replace(key, MARK),
            retry_after_s=failure.retry_after_s,
            usage=failure.usage,
            text=failure.text.replace(key, MARK),
        )

    async def _ask(self, request: ModelRequest, heard: Listener | None) -> ModelAnswer:
        try:
            from pydantic_ai import exceptions as ex
        except ImportError as error:
            raise _missing(self.known.provider, error) from None
        client = await self._client()
        try:
            async with asyncio.timeout(request.timeout_s):
                parameters = self._parameters(client, request)
                response = await self._stream(client, request, parameters, heard)
        except TimeoutError:
            raise ModelFailure("timeout", f"{self.name}: no answer in time") from None
        except ex.ModelAPIError as error:
            raise of_provider(error, self.name) from None
        except ex.ContentFilterError:
            raise ModelFailure("policy", f"{self.name}: the model refuses to answer") from None
        except ex.UnexpectedModelBehavior as error:
            raise ModelFailure("invalid_output", f"{self.name}: {error}"[:500]) from None
        except ex.UserError as error:
            raise ModelFailure("unavailable", f"{self.name}: {error}"[:500]) from None
        except (ModelFailure, UsageError):
            raise
        except Exception as error:  # noqa: BLE001 - packages of others, fed by a stranger
            # The provider's package could not read the server's answer.
            words = f"{self.name}: the answer cannot be read ({type(error).__name__})"
            raise ModelFailure("invalid_output", words) from None
        wanted = parameters.output_object
        strict = wanted is not None and bool(wanted.strict)
        return self._read(response, request, ended=_ended(client, response), strict=strict)

    async def _stream(
        self,
        client: ProviderClient,
        request: ModelRequest,
        parameters: ModelRequestParameters,
        heard: Listener | None,
    ) -> ModelResponse:
        from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

        settings = self._settings(request)
        from pydantic_ai.direct import model_request_stream

        size = 0
        async with model_request_stream(
            client,
            _messages(request, cache=self.known.cache),
            model_settings=settings,  # type: ignore[arg-type]
            model_request_parameters=parameters,
        ) as stream:
            async for event in stream:
                match event:
                    case PartStartEvent(part=TextPart(content=piece)):
                        pass
                    case PartDeltaEvent(delta=TextPartDelta(content_delta=piece)):
                        pass
                    case _:
                        size += len(repr(event)) // 2
                        piece = ""
                size += len(piece)
                if size > ANSWER_CHARS_MAX:
                    raise ModelFailure(
                        "invalid_output",
                        f"{self.name}: the answer is longer than {ANSWER_CHARS_MAX:,} characters",
                        usage=_usage(stream.usage),
                    )
                if piece and heard is not None:
                    heard(piece)
            return stream.get()

    def _settings(self, request: ModelRequest) -> dict[str, Any]:
        """Return the limits of a call, and cache marks where the provider takes them.

        System text, tools and the conversation so far are sent again with every call. A server of
        the user's own gets marks per block only: the mark for the whole request is Anthropic's own.
        """
        settings: dict[str, Any] = {"max_tokens": request.max_tokens}
        if request.temperature is not None:
            settings["temperature"] = request.temperature
        if not self.known.cache:
            return settings
        if self.known.provider == "anthropic" and self.known.url:
            return settings | dict.fromkeys(CACHE_BLOCKS, True)
        return settings | {"cache": True}

    def _read(
        self, response: ModelResponse, request: ModelRequest, *, ended: bool, strict: bool
    ) -> ModelAnswer:
        from pydantic_ai.messages import TextPart, ToolCallPart

        usage = _usage(response.usage)
        said = [part.content for part in response.parts if isinstance(part, TextPart)]
        text = clean("".join(said))
        match response.finish_reason if ended else None:
            case None:
                raise ModelFailure("transient", f"{self.name}: the answer was cut off", usage=usage)
            case "content_filter":
                raise ModelFailure(
                    "policy", f"{self.name}: the model refuses to answer", usage=usage
                )
            case "error":
                raise ModelFailure(
                    "transient", f"{self.name}: the provider failed in its answer", usage=usage
                )
            case "length":
                words = f"{self.name}: the answer is longer than {request.max_tokens} tokens"
                raise ModelFailure("invalid_output", words, usage=usage, text=text)
            case _:
                pass
        calls = tuple(
            ToolCall(clean(part.tool_call_id), clean(part.tool_name), arguments(part.args))
            for part in response.parts
            if isinstance(part, ToolCallPart)
        )
        data = None
        if request.schema is not None:
            wanted = [call for call in calls if call.tool == DATA_TOOL]
            data = wanted[0].arguments if wanted else data_in(text)
            if strict:  # open parts came as JSON in a text
                data = open_answer(data, request.schema)
            calls = ()
            if data is None:
                words = f"{self.name}: the answer is no JSON: {text[:200]!r}"
                raise ModelFailure("invalid_output", words, usage=usage, text=text)
        elif not calls and not text.strip():
            raise ModelFailure("invalid_output", f"{self.name}: the answer is empty", usage=usage)
        return ModelAnswer(text=text, data=data, calls=calls, usage=usage, model=self.name)

    def _parameters(self, client: ProviderClient, request: ModelRequest) -> ModelRequestParameters:
        """Return how a request is put to this client: its tools, or the schema of its answer."""
        from pydantic_ai.messages import InstructionPart
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.tools import ToolDefinition

        parts = [InstructionPart(content=request.system)]
        if request.schema is None:
            tools = [
                ToolDefinition(
                    name=tool.name,
                    parameters_json_schema=tool.parameters,
                    description=tool.description,
                    strict=False,
                )
                for tool in request.tools
            ]
            # Without text as an answer the client forces a call wherever its model can be forced;
            # the setting `tool_choice` would be refused for models that cannot.
            return ModelRequestParameters(
                function_tools=tools,
                allow_text_output=not request.must_call,
                instruction_parts=parts,
            )
        if self.known.schema == "prompted":
            form = msgspec.json.encode(request.schema).decode()
            told = f"Answer with one JSON object and nothing else. Its JSON Schema: {form}"
            parts.append(InstructionPart(content=told))
            return ModelRequestParameters(instruction_parts=parts)
        forced = self.known.schema == "native"
        native = client.profile.get("supports_json_schema_output", False)
        if self.known.schema != "tool" and (forced or native):
            found = _native(client, request.schema, parts, forced=forced)
            if found is not None:
                return found
        return ModelRequestParameters(
            output_mode="tool",
            output_tools=[
                ToolDefinition(
                    name=DATA_TOOL,
                    parameters_json_schema=request.schema,
                    description="The answer, in the form that is wanted.",
                    kind="output",
                    strict=False,
                )
            ],
            allow_text_output=False,
            instruction_parts=parts,
        )

    async def _client(self) -> ProviderClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            client = _made(self.known)
            self._clients[loop] = client, _open(client)
            await anext(self._clients[loop][1])
        return self._clients[loop][0]


def _native(
    client: ProviderClient, schema: dict[str, Any], parts: list[Any], *, forced: bool
) -> ModelRequestParameters | None:
    """Return native output in the widest schema that the client takes; None if that is no use.

    The client itself is asked, since providers differ: OpenAI takes any schema, Anthropic only
    closed ones of limited size. An open schema is then better asked for as a tool, which takes any
    schema; where native is `forced`, its open parts are asked for as JSON in a text.
    """
    from pydantic_ai import exceptions as ex
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition

    def asking(form: dict[str, Any], *, strict: bool) -> ModelRequestParameters:
        wanted = OutputObjectDefinition(json_schema=form, name=DATA_TOOL, strict=strict)
        return ModelRequestParameters(
            output_mode="native", output_object=wanted, instruction_parts=parts
        )

    as_it_is = asking(schema, strict=False)
    try:
        client.prepare_request(None, as_it_is)
    except ex.UserError:
        if is_open(schema) and not forced:
            return None
    else:
        return as_it_is
    strict = asking(close_schema(schema), strict=True)
    try:
        client.prepare_request(None, strict)
    except (ex.UserError, ex.ModelAPIError, ValueError):
        return strict if forced else None
    return strict


async def _open(client: ProviderClient) -> AsyncGenerator[None, None]:
    """Open until the event loop ends, which closes the generators that were begun in it."""
    try:
        yield
    finally:
        close = getattr(getattr(client, "client", None), "close", None)
        if close is not None:
            with contextlib.suppress(Exception):
                await close()


def _ended(client: ProviderClient, response: ModelResponse) -> bool:
    """Return whether the provider itself marked the end of the answer.

    For Chat Completions pydantic-ai invents an end for a stream that has none.
    """
    made_up = any(kind.__name__ == "OpenAIChatModel" for kind in type(client).__mro__)
    refused = response.finish_reason == "content_filter"
    return not made_up or refused or "finish_reason" in (response.provider_details or {})


def _made(name: ModelName) -> ProviderClient:
    """Return a client for one model that never retries by itself."""
    variable = key_variable(name)
    if variable and not os.environ.get(variable):
        words = f"{name}: the variable {variable}, which is to hold its key, is not set"
        raise ModelFailure("denied", words)
    try:
        client = _by_address(name) if name.url or name.key else _by_name(name)
    except ImportError as error:
        raise _missing(name.provider, error) from None
    except Exception as error:  # noqa: BLE001 - packages of others
        # pydantic-ai and the providers' packages name the missing part, most often the key.
        raise ModelFailure("denied", f"{name}: {error}"[:500]) from None
    inner: Any = getattr(client, "client", None)
    if hasattr(inner, "max_retries"):
        inner.max_retries = 0
    return client


def _by_name(name: ModelName) -> ProviderClient:
    from pydantic_ai.models import infer_model

    return infer_model(f"{name.provider}:{name.model}")


def _by_address(name: ModelName) -> ProviderClient:
    from leadhand.models.transport import client  # it loads the HTTP library

    key = os.environ[name.key] if name.key else "none"
    http = client(own=bool(name.url))
    if name.provider == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        base = name.url.removesuffix("/v1") or None
        anthropic = AnthropicProvider(api_key=key, base_url=base, http_client=http)
        return AnthropicModel(name.model, provider=anthropic)
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    if not name.url:
        raise UsageError(f"{name}: a key of its own goes with anthropic and openai, or an address")
    there = OpenAICompatibleProvider(
        "address",
        base_url=name.url,
        api_key=key,
        http_client=http,
        profile={"supports_json_schema_output": True},
    )
    if name.provider == "responses":
        return OpenAIResponsesModel(name.model, provider=there)
    return OpenAIChatModel(name.model, provider=there)


def _told(turn: UserMessage, *, cache: bool) -> Any:
    """Return a text of ours, with a cache mark at the end of its stable part."""
    from pydantic_ai.messages import CachePoint

    head, tail = turn.text[: turn.stable], turn.text[turn.stable :]
    return [head, CachePoint(), tail] if cache and head.strip() and tail.strip() else turn.text


def _messages(request: ModelRequest, *, cache: bool) -> list[ModelMessage]:
    from pydantic_ai import messages as pm

    found: list[pm.ModelMessage] = []
    ours: list[ModelRequestPart] = []
    for turn in request.turns:
        match turn:
            case UserMessage():
                ours.append(pm.UserPromptPart(content=_told(turn, cache=cache)))
            case Result():
                ours.append(
                    pm.ToolReturnPart(tool_name=turn.tool, content=turn.text, tool_call_id=turn.id)
                )
            case AssistantMessage():
                found.append(pm.ModelRequest(parts=ours))
                ours = []
                theirs: list[pm.ModelResponsePart] = []
                if turn.text:
                    theirs.append(pm.TextPart(content=turn.text))
                theirs += [
                    pm.ToolCallPart(tool_name=call.tool, args=call.arguments, tool_call_id=call.id)
                    for call in turn.calls
                ]
                found.append(pm.ModelResponse(parts=theirs))
    found.append(pm.ModelRequest(parts=ours))
    return found


def _usage(usage: Any) -> Usage:
    return Usage(
        usage.input_tokens or 0,
        usage.output_tokens or 0,
        usage.cache_read_tokens or 0,
        usage.cache_write_tokens or 0,
    )


def _missing(provider: str, error: ImportError) -> UsageError:
    return UsageError(
        f"{provider} needs packages that are not installed ({error.name or error}). "
        "Fix: pip install 'leadhand[models]'"
    )
