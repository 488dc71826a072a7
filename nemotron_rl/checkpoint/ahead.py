"""Work done by several threads ahead of whoever needs the results, in order and in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor


def run_ahead[T](tasks: Iterable[Callable[[], T]], workers: int) -> Generator[T]:
    """The results of `tasks`, in their order; at most `workers` + 1 of them are begun and not yet asked for.

    A task's exception is raised where its result would be. Whatever is running when the generator is closed is waited
    for.
    """
    with ThreadPoolExecutor(workers, thread_name_prefix="ahead") as pool:
        begun: deque[Future[T]] = deque()
        try:
            for task in tasks:
                begun.append(pool.submit(task))
                if len(begun) > workers:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()
