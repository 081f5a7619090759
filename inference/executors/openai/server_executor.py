"""What the executors of completions and of embeddings have in common."""

from collections.abc import Callable

from millstream.inference.executors.interface import AsyncExecutor, Inputs
from millstream.inference.executors.limits import RequestLimits
from millstream.inference.executors.openai.prompt import Prompt
from millstream.inference.executors.openai.requester import Requester
from millstream.inference.executors.request_report import RequestReport
from millstream.inference.repository import ModelVersion


class OpenAIExecutor(AsyncExecutor):
    """An executor that sends requests to a server with OpenAI's API."""

    def __init__(self, model: ModelVersion, prompt: Prompt, requester: Requester, limits: RequestLimits) -> None:
        """Args:
        model: has the inputs and outputs.
        prompt: makes the prompts.
        requester: sends the requests.
        limits: of the requests; the caller keeps them.
        """
        self.limits = limits
        self.on_request: Callable[[RequestReport], object] | None = None
        self._model = model
        self._prompt = prompt
        self._requester = requester
        requester.report = self._report

    def tokens(self, inputs: Inputs) -> int:
        """See `AsyncExecutor.tokens`."""
        return self._prompt.estimate(inputs)

    async def close(self) -> None:
        """See `AsyncExecutor.close`."""
        await self._requester.close()

    def _report(self, report: RequestReport) -> None:
        if self.on_request is not None:
            self.on_request(report)
