"""What the executors of completions and of embeddings have in common."""

import logging
from collections.abc import Callable

from millstream.inference.errors import ModelRejected
from millstream.inference.executors.interface import AsyncExecutor, Inputs
from millstream.inference.executors.limits import RequestLimits
from millstream.inference.executors.openai.errors import RequestRefused
from millstream.inference.executors.openai.prompt import Prompt, sample
from millstream.inference.executors.openai.requester import Requester
from millstream.inference.executors.request_report import RequestReport
from millstream.inference.repository import ModelVersion

log = logging.getLogger(__name__)


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
        requester.sample = self._ask_sample

    async def warm_up(self) -> None:
        """See `AsyncExecutor.warm_up`. At least one server must have the model; the others may come later."""
        await self._requester.start()

    def tokens(self, inputs: Inputs) -> int:
        """See `AsyncExecutor.tokens`."""
        return self._prompt.estimate(inputs)

    async def close(self) -> None:
        """See `AsyncExecutor.close`."""
        await self._requester.close()

    async def _ask_sample(self) -> None:
        """Send one request, with the word test as each text. Raises RequestRefused or ExecutorUnavailable."""
        try:
            self.sample_result = await self.run(sample(self._model.signature.inputs), self.limits.timeout)
        except RequestRefused:
            raise
        except ModelRejected as error:
            log.warning("%s: the answer to a sample event is no prediction: %s", self._model.place, error)
            self.sample_result = error

    def _report(self, report: RequestReport) -> None:
        if self.on_request is not None:
            self.on_request(report)
