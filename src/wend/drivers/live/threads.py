"""Calls that may block, in threads of their own."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


async def call_in_thread(function: Callable[[], Result]) -> Result:
    """Call a function in a thread of its own. A process that ends does not wait for this thread, as it would for the
    threads of asyncio: a resolver may take half a minute."""
    result: Future[Result] = Future()

    def run() -> None:
        if result.set_running_or_notify_cancel():
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)

    threading.Thread(target=run, name="resolver", daemon=True).start()
    return await asyncio.wrap_future(result)
