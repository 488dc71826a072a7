"""HybridModel's output layer, kept out of the model's forward pass so that logits need not exist all at once.

S tokens of this rank's part of the sequence · B sequences · H hidden size · V this rank's part of the vocabulary
"""

from __future__ import annotations

from typing import Any, Self

from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
)
from megatron.core.tensor_parallel.layers import ColumnParallelLinear
from torch import Tensor

from nemotron_rl.megatron.logprobs import TokenLogprobs, token_logprobs


class DeferredOutputLayer(ColumnParallelLinear):
    """Passes hidden states through, so that HybridModel's forward returns them in the place of logits.

    The loss then asks for log-probs of the tokens that it needs. Names, shards and checkpoints are the parent's.
    """

    @classmethod
    def taking_over(cls, layer: ColumnParallelLinear) -> Self:
        """A deferred layer with the weight of `layer`.

        Raises:
            NotImplementedError: for a layer without a weight of its own: embeddings tied to it are not supported.
        """
        if layer.weight is None:
            raise NotImplementedError("the output layer shares the embedding's weight; no Nemotron-H model does")
        deferred = cls(
            layer.input_size,
            layer.output_size,
            config=layer.config,
            init_method=layer.config.init_method,
            bias=False,
            skip_weight_param_allocation=True,
            tp_group=layer.tp_group,
        )
        deferred.weight = layer.weight
        return deferred

    def forward(self, input_: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        """The hidden states as they are, and no bias."""
        return input_, None

    def token_logprobs(
        self,
        hidden_SBH: Tensor,
        token_SB: Tensor,
        wanted_SB: Tensor,
        *,
        temperature: float = 1.0,
        entropy: bool = False,
        weight: Tensor | None = None,
    ) -> TokenLogprobs:
        """Log-probs of `token_SB` where `wanted_SB` is true, in row-major order of [S, B].

        Under sequence parallelism `hidden_SBH` is a part of what the other two cover whole.
        """
        hidden_NH = self._whole(hidden_SBH)[wanted_SB]
        return token_logprobs(
            hidden_NH,
            self.weight if weight is None else weight,
            token_SB[wanted_SB],
            temperature=temperature,
            entropy=entropy,
            tp_group=self.tp_group,
        )

    def logits(self, hidden_SBH: Tensor) -> Tensor:
        """All logits at once, [S, B, V]; for tests and small models."""
        return self._whole(hidden_SBH) @ self.weight.T

    def _whole(self, hidden_SBH: Tensor) -> Tensor:
        """All tokens of the tensor-parallel group; backward sums the gradients of its ranks."""
        if self.sequence_parallel:
            return gather_from_sequence_parallel_region(hidden_SBH, group=self.tp_group)
        return copy_to_tensor_model_parallel_region(hidden_SBH, group=self.tp_group)


def defer_output_layers(models: list[Any]) -> list[Any]:
    """Put a deferred layer in the place of each model chunk's output layer, if it has one; a pre-wrap hook."""
    for model in models:
        if hasattr(model, "output_layer"):
            model.output_layer = DeferredOutputLayer.taking_over(model.output_layer)
    return models
