"""Requests to an OpenAI-compatible server: bounded in number, tried again where that helps, checked when answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from lmassay.errors import FAILED_PART_WAY, LmassayError

T = TypeVar("T")
#: Seconds to wait before a second try; doubled each time, up to the longest.
WAIT, LONGEST_WAIT = 0.5, 30.0


class Rejected(Exception):  # noqa: N818 - an answer that probing makes use of, not an error by itself
    """The server understood the request and will not do it (a 4xx)."""

    def __init__(self, status: int, why: str) -> None:
        self.status = status
        super().__init__(why)


class Server:
    """The address of a server and how patiently it is asked.

    Parameters
    ----------
    url : str
        Up to and with ``/v1``.
    model : str
        As the server names it.
    retries : int
        Further tries after 408, 409, 429, 5xx, a time-out or a lost connection.
    timeout : float
        Seconds for one answer.
    """

    def __init__(
        self, url: str, model: str, *, api_key: str | None, concurrency: int, retries: int, timeout: float, wait: float
    ) -> None:
        try:
            import openai
        except ImportError as error:
            raise LmassayError(
                "bad-request", "a model server is asked through the openai package", "pip install 'lmassay[serve]'"
            ) from error
        if concurrency < 1 or retries < 0 or timeout <= 0:
            raise LmassayError(
                "bad-request", "concurrency is at least 1, retries at least 0, and the time-out above 0", "change them"
            )
        self._openai = openai
        self.url, self.model = url, model
        self.concurrency, self.retries, self.timeout, self.wait = concurrency, retries, timeout, wait
        self._key = api_key or "none"

    def all(self, requests: Sequence[Callable[[Any], Awaitable[T]]]) -> list[T]:
        """Every request's answer, a bounded number at a time; each is called with a client.

        Raises
        ------
        LmassayError
            ``server-failed``; requests not yet answered are given up.
        """
        answers: dict[int, T] = {}
        left = iter(enumerate(requests))

        async def work(client: Any) -> None:
            for at, request in left:
                answers[at] = await request(client)

        async def run() -> None:
            async with (
                self._openai.AsyncOpenAI(
                    base_url=self.url, api_key=self._key, max_retries=0, timeout=self.timeout
                ) as client,
                asyncio.TaskGroup() as group,
            ):
                for _ in range(min(self.concurrency, len(requests))):
                    group.create_task(work(client))

        try:
            _block(run())
        except BaseExceptionGroup as several:
            raise _first(several) from several
        return [answers[at] for at in range(len(requests))]

    async def patiently(self, ask: Callable[[], Awaitable[T]], *, trying: bool = False) -> T:
        """One answer, asked for again where that may help.

        Parameters
        ----------
        trying : bool
            A second 500 or 501 means that the server cannot do this: some fail where others refuse.

        Raises
        ------
        Rejected
        LmassayError
            ``server-failed``.
        """
        openai = self._openai
        for attempt in range(self.retries + 1):
            try:
                return await ask()
            except openai.APITimeoutError:
                why, pause = f"no answer within {self.timeout:g} seconds", None
            except openai.APIConnectionError as error:
                why, pause = f"the connection failed: {_words(error.__cause__ or error)}", None
            except openai.APIStatusError as error:
                why = f"{error.status_code}: {_words(error)}"
                refused = error.status_code < 500 and error.status_code not in (408, 409, 429)
                if refused or (trying and attempt and error.status_code in (500, 501)):
                    raise Rejected(error.status_code, why) from error
                pause = error.response.headers.get("retry-after")
            except (openai.OpenAIError, ValueError) as error:
                # The client gives up on what is no JSON, or not of the shape it knows.
                raise self.nonsense(_words(error)) from error
            if attempt < self.retries:
                await asyncio.sleep(self._pause(attempt, pause))
        raise self.failed(f"{why} ({self.retries + 1} tries)")

    def _pause(self, attempt: int, asked: str | None) -> float:
        try:
            return min(LONGEST_WAIT, max(0.0, float(asked or "")))
        except ValueError:
            return float(min(LONGEST_WAIT, self.wait * 2**attempt))

    def failed(self, why: str) -> LmassayError:
        """The server did not do what it can do."""
        return LmassayError(
            "server-failed",
            f"{self.url}: {why}",
            "see that the server runs, then run the same command again: what was drawn is kept",
            exit_status=FAILED_PART_WAY,
        )

    def nonsense(self, came: str) -> LmassayError:
        """The server answered with something that is no answer."""
        return self.failed(f"an answer that is none came back: {came}")

    def cannot(self, what: str) -> LmassayError:
        """The server lacks something."""
        return LmassayError(
            "server-cannot",
            f"{self.url} ({self.model}): {what}",
            "use a server that can (vLLM and SGLang do), or the model in process",
        )


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _first(several: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = several.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _block(work: Coroutine[Any, Any, None]) -> None:
    """Wait for `work`, also where a loop is running already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    raised: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
