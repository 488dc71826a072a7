"""SGLang's NemotronH whose MoE layers say which layer they are, so that their experts can be recorded.

Imported by SGLang's processes only. Not run on a GPU yet.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.models import nemotron_h

from nemotron_rl.rollout.sglang.routes import number_choices


class NemotronHForCausalLM(nemotron_h.NemotronHForCausalLM):  # type: ignore[misc]  # its name is how SGLang finds it
    """The same model."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        number_choices(self)


EntryClass = [NemotronHForCausalLM]
