"""The errors a user can meet. Each says what was wrong, where, what was expected and what to do; `cli.py` prints it."""

from __future__ import annotations


class NemotronRLError(Exception):
    """Base of every error raised on purpose. `exit_code` is what the command line ends with."""

    exit_code = 1


class InputError(NemotronRLError):
    """The user's input was wrong; nothing was started and nothing was written."""

    exit_code = 2


class SettingsError(InputError):
    """A setting is unknown, of the wrong type, out of range, or impossible together with another."""


class CheckpointError(InputError):
    """A checkpoint is missing, broken, or does not fit what was asked of it."""


class SliceError(CheckpointError):
    """The chosen layers cannot be sliced out of the source."""


class DataError(InputError):
    """A prompt file is missing or has a broken line."""


class StoreError(NemotronRLError):
    """An artifact is missing, incomplete, or not what its manifest says."""


class JobError(NemotronRLError):
    """A job could not be started, or ended badly."""


class WeightMismatch(NemotronRLError):
    """The engine does not hold the weights that the trainer sent."""


class GateFailed(NemotronRLError):
    """The run finished, and at least one gate did not hold."""

    exit_code = 3
