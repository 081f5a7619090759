"""Makes the requests' bodies of events: the prompt, and the parameters that are the same for all."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.interface import Inputs, rows_of
from millstream.inference.executors.openai.template import Template, Values
from millstream.inference.ragged import Ragged
from millstream.inference.request_section import Message, RequestOptions
from millstream.inference.signature import TensorInput, blank
from millstream.schemas.wording import shown

Place = Callable[..., str]
Messages = list[dict[str, str]]

CHARS_PER_TOKEN = 4  # of English text, for estimates
CHARS_PER_NUMBER = 4
DEFAULT_OUTPUT_TOKENS = 256  # estimate where no parameter limits them


class Prompt:
    """The prompt of a model."""

    def __init__(self, options: RequestOptions, inputs: Sequence[TensorInput], at: Place) -> None:
        """Args:
        options: of config.yaml.
        inputs: the tensors, which the templates name.
        at: places in config.yaml, for messages.

        Raises:
            ModelConfigError: a template is wrong, or an input is in no template.
        """
        self._inputs = inputs
        self._most = options.max_prompt_chars
        names = [entry.tensor for entry in inputs]
        for index, name in enumerate(names):
            if not name.isidentifier():
                raise ModelConfigError(
                    f"{at('inputs', index, 'tensor')}: expected a name that a template can have, such as customer_name, found "
                    f"{shown(name)}. Use letters, digits and underscores."
                )
        self._templates = [
            (message.role, Template(message.content, names, place)) for message, place in _messages(options, names, at)
        ]
        chars = sum(len(message.content) for message, _ in _messages(options, names, at))
        self._tokens_of_each = chars // CHARS_PER_TOKEN + _output_tokens(options)
        used = frozenset[str]().union(*(template.names for _, template in self._templates))
        for index, name in enumerate(names):
            if name not in used:
                raise ModelConfigError(
                    f"{at('inputs', index)}: tensor `{name}` is in no template of the prompt. Write `{{{{ {name} }}}}` there, or "
                    f"leave the input out."
                )

    def estimate(self, inputs: Inputs, row: int | None = None) -> int:
        """The tokens that the requests will take, as an estimate: the texts, and as much output as the parameters allow.

        Args:
            inputs: tensor -> [events, ...].
            row: of the event; None: all events.
        """
        events = rows_of(inputs) if row is None else 1
        chars = 0
        for entry in self._inputs:
            tensor = inputs[entry.tensor] if row is None else inputs[entry.tensor][row : row + 1]
            items = (tensor.values if isinstance(tensor, Ragged) else tensor).reshape(-1)
            chars += sum(map(len, items.tolist())) if entry.dtype == "string" else len(items) * CHARS_PER_NUMBER
        return chars // CHARS_PER_TOKEN + events * self._tokens_of_each

    def messages(self, inputs: Inputs, row: int) -> Messages:
        """The chat messages of one event; for the other tasks, the text is the content of the only one.

        Raises:
            NotSent: no prompt can be made of the event, or it is too long.
        """
        values = values_of(self._inputs, inputs, row)
        found: Messages = []
        room = self._most
        for role, template in self._templates:
            content = template.render(values, room)
            room -= len(content)
            found.append({"role": role, "content": content})
        return found


def _messages(options: RequestOptions, names: Sequence[str], at: Place) -> list[tuple[Message, str]]:
    """The templates, with their places in config.yaml."""
    if options.messages is not None:
        return [
            (message, at("request", "messages", index, "content")) for index, message in enumerate(options.messages)
        ]
    if options.prompt is not None:
        return [(Message(role="user", content=options.prompt), at("request", "prompt"))]
    if len(names) != 1:  # embedding: the text itself is the prompt
        raise ModelConfigError(
            f"{at('inputs')}: expected `request.prompt`, which says how the inputs become one text, because there are "
            f"{len(names)}; found none. "
            f'Write it, such as `prompt: "{{{{ {names[0]} }}}}"`.'
        )
    return [(Message(role="user", content=f"{{{{ {names[0]} }}}}"), at("inputs"))]


def values_of(entries: Sequence[TensorInput], inputs: Inputs, row: int) -> Values:
    """What one event has in each tensor: a value if the tensor has one field, otherwise a list."""
    values: dict[str, Any] = {}
    for entry in entries:
        tensor = inputs[entry.tensor]
        if isinstance(tensor, Ragged):
            values[entry.tensor] = _listed(tensor.values[tensor.offsets[row] : tensor.offsets[row + 1]])
        else:
            items = _listed(tensor[row].reshape(-1))
            values[entry.tensor] = items[0] if not entry.array and entry.width == 1 else items
    return values


def _listed(array: Any) -> list[Any]:
    """The elements as Python objects; a float32 with the digits that it has."""
    return [float(str(each)) for each in array] if array.dtype == np.float32 else array.tolist()


def _output_tokens(options: RequestOptions) -> int:
    """The most tokens of a completion, as far as the parameters say."""
    if options.task == "embedding":
        return 0
    limits = (options.parameters.get(name) for name in ("max_completion_tokens", "max_tokens"))
    return next((limit for limit in limits if isinstance(limit, int)), DEFAULT_OUTPUT_TOKENS)


def sample(entries: Sequence[TensorInput]) -> dict[str, Any]:
    """Inputs of one event, with the word test as each text."""
    inputs = blank(entries, 1)
    for entry in entries:
        if entry.dtype == "string":
            tensor = inputs[entry.tensor]
            (tensor.values if isinstance(tensor, Ragged) else tensor).fill("test")
    return inputs
