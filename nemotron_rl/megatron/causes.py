"""What the system said, below what torch's and megatron's writers of files made of it."""

from __future__ import annotations

from torch.distributed.checkpoint.api import CheckpointException


def root_cause(error: BaseException) -> BaseException:
    """The OSError that an error came from, or else the first error of all; of several ranks', the first rank's."""
    if isinstance(error, CheckpointException):
        error = error.failures[min(error.failures)][0]
    while not isinstance(error, OSError) and (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error
