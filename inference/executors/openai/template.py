"""Templates of prompts: Jinja, in its sandbox. Event fields are values of a template, never a part of it."""

import importlib
import sys
from collections.abc import Collection, Mapping
from typing import Any

from millstream.inference.errors import ModelConfigError, NotSent
from millstream.inference.executors.error_classification import line_of
from millstream.schemas.wording import meant

Values = Mapping[str, Any]
"""Tensor -> what one event has there: a value, or a list of values."""


class Template:
    """A template that is compiled. Threads may share it."""

    def __init__(self, text: str, names: Collection[str], place: str) -> None:
        """Args:
        text: the template.
        names: the tensors, which it may name.
        place: the option's, for messages.

        Raises:
            ModelConfigError: the template is wrong, it names something other than a tensor, or Jinja is not installed.
        """
        jinja = _jinja()
        environment = jinja.sandbox.ImmutableSandboxedEnvironment(
            undefined=jinja.StrictUndefined, keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True
        )
        environment.globals = {"range": environment.globals["range"]}  # in the sandbox, its length is limited
        try:
            tree = environment.parse(text)
            self.names = frozenset(jinja.meta.find_undeclared_variables(tree)) - environment.globals.keys()
            self._template = environment.from_string(text)
        except jinja.TemplateError as error:  # TemplateSyntaxError and TemplateAssertionError have a line
            line = getattr(error, "lineno", None)
            where = f" in line {line} of the template" if line else ""
            raise ModelConfigError(
                f"{place}: expected a Jinja template: {line_of(error)}{where}. Correct it."
            ) from None
        for name in sorted(self.names.difference(names)):
            raise ModelConfigError(
                f"{place}: expected the names of tensors in the template ({', '.join(sorted(names))}), found {name}."
                f"{meant(name, names)} Write `{{{{ TENSOR }}}}`, or add an input with this name."
            )
        self._errors = (jinja.TemplateError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)

    def render(self, values: Values, most: int) -> str:
        """The text of one event.

        Args:
            values: of each tensor.
            most: characters that the text may have.

        Raises:
            NotSent: the text is longer, or the template can't take these values.
        """
        pieces: list[str] = []
        room = most
        try:
            for piece in self._template.generate(values):
                room -= len(piece)
                if room < 0:
                    break
                pieces.append(piece)
        except self._errors as error:
            raise NotSent(f"the prompt can't be made of this event: {line_of(error)}") from None
        if room < 0:
            raise NotSent(
                f"expected a prompt of at most {most:,} characters, found a longer one. Allow more with "
                f"`request.max_prompt_chars` in config.yaml, or shorten the fields"
            )
        return "".join(pieces)


def _jinja() -> Any:
    try:
        jinja = importlib.import_module("jinja2")
        importlib.import_module("jinja2.meta")
        importlib.import_module("jinja2.sandbox")
    except ImportError as error:
        raise ModelConfigError(
            f"a model of the repository has a prompt, which needs Jinja, and Jinja can't be imported here ({line_of(error)}). "
            f"Install Millstream's extra `openai`: {sys.executable} -m pip install 'millstream[openai]'"
        ) from None
    return jinja
