"""Where the weights come from, which layers are kept, and whether they are converted."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nemotron_rl.config.base import Frozen


class SourceSettings(Frozen):
    """The checkpoint that the run starts from."""

    uri: str = "synth://tiny"
    """A folder, `s3://bucket/prefix`, `hf://org/name@revision`, or `synth://PRESET` for random weights."""
    seed: int = Field(0, ge=0)
    """Seed of the random weights of a `synth://` source; unused otherwise."""


class SliceSettings(Frozen):
    """Which layers of the source are kept."""

    layers: tuple[int, ...] | None = None
    """Source layers, in their new order; None keeps all of them."""
    mtp: Literal["keep", "drop"] = "keep"
    """Whether the multi-token-prediction head is kept."""


class ConvertSettings(Frozen):
    """Conversion of the sliced checkpoint to Megatron's torch_dist format."""

    enabled: bool = True
    """Off: the trainer loads the Hugging Face layout itself."""
