"""The executor `openai`: asks a server with OpenAI's API for completions or embeddings."""

from functools import partial

from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.interface import AsyncExecutor
from millstream.inference.executors.openai.embedding_executor import EmbeddingExecutor
from millstream.inference.executors.openai.prompt import Prompt
from millstream.inference.executors.openai.requester import Requester
from millstream.inference.executors.openai.server_options import OpenAIServer
from millstream.inference.executors.openai.text_executor import TextExecutor
from millstream.inference.repository import ModelVersion
from millstream.inference.request_section import read_request


def open_openai(model: ModelVersion, max_events: int) -> AsyncExecutor:
    """Create the executor. It connects later.

    Args:
        model: its config.yaml has the sections `server` and `request`.
        max_events: the largest micro-batch. Completions take one event at a time.

    Raises:
        ModelConfigError: config.yaml is wrong, or a package is not installed.
    """
    assert model.server is not None, "a model of a server has a config.yaml"
    file = model.server.file
    server = model.server.read(OpenAIServer)
    options = read_request(file)
    for index, entry in enumerate(model.signature.inputs):
        if entry.mask or entry.token_types or entry.splitter is not None:
            raise ModelConfigError(
                f"{file.at('inputs', index)}: expected a field whose values the prompt takes as they are, found a mask or "
                f"tokens. The server makes tokens itself: leave the option out."
            )
    prompt = Prompt(options, model.signature.inputs, file.at)
    name = server.model or model.name
    requester = partial(Requester, server, name, place=model.place)
    if options.task == "embedding":
        return EmbeddingExecutor(model, options, prompt, requester("embeddings"), server.limits, max_events)
    operation = "chat" if options.task == "chat" else "text_completion"
    return TextExecutor(model, options, prompt, requester(operation), server.limits)
