"""The layer numbers in a quantization's account of modules, renumbered with the layers of a slice. Pure.

ModelOpt lists modules in `hf_quant_config.json` and in config.json's `quantization_config`: what is left unquantized
(`exclude_modules`, `ignore`), and in mixed precision what is quantized how (`quantized_layers`, `targets`). Left as
they were, they would describe other layers than the slice has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nemotron_rl.checkpoint.selection import Mtp
from nemotron_rl.checkpoint.strict_json import shown
from nemotron_rl.checkpoint.tally import MTP_PREFIX
from nemotron_rl.errors import SliceError

QUANT_FILE = "hf_quant_config.json"
QUANT_KEY = "quantization_config"
"""Of config.json."""

_MODULE = re.compile(r"(?P<before>(?:[\w*]+\.)*layers\.)(?P<layer>0|[1-9]\d{0,8})(?P<after>\..*|\*|)", re.DOTALL)
_LAYER_NUMBER = re.compile(r"layers\W*\d")


def renumbered(account: Any, new_layer: Mapping[int, int], mtp: Mtp, where: str) -> Any:
    """The same account for a slice: modules of layers that are left out are left out of it.

    Args:
        account: JSON, at any depth; names of modules are entries of lists and keys of objects.
        new_layer: New number of each layer that is kept, by its number in the source.
        mtp: Whether the MTP head is kept, whose modules keep their names.
        where: Begins the message of an error.

    Raises:
        SliceError: Layers are named by a pattern that cannot be renumbered.
    """
    if isinstance(account, dict):
        return {
            new: renumbered(value, new_layer, mtp, where)
            for name, value in account.items()
            for new in _new_names(name, new_layer, mtp, where)
        }
    if isinstance(account, list):
        return [
            new
            for entry in account
            for new in (
                _new_names(entry, new_layer, mtp, where)
                if isinstance(entry, str)
                else [renumbered(entry, new_layer, mtp, where)]
            )
        ]
    return account


def _new_names(name: str, new_layer: Mapping[int, int], mtp: Mtp, where: str) -> list[str]:
    """What a module is called in the slice: one name, none, or with `layers.1*`, which is also 10 to 19, several."""
    if name.startswith(MTP_PREFIX):
        return [name] if mtp == "keep" else []
    module = _MODULE.fullmatch(name)
    if module is None:
        if _LAYER_NUMBER.search(name):
            raise SliceError(
                f"{where}: {shown(name)} names layers by a pattern, which cannot be renumbered; write one name for "
                "each layer, such as backbone.layers.4.mixer.in_proj"
            )
        return [name]
    before, layer, after = module.groups()
    if after == "*":
        return [f"{before}{new}.*" for old, new in new_layer.items() if str(old).startswith(layer)]
    return [f"{before}{new_layer[int(layer)]}{after}"] if int(layer) in new_layer else []
