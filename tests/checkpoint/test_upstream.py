"""What we write, read by those who have to read it: transformers, megatron-bridge and the safetensors library."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from nemotron_rl.checkpoint.layout import CheckpointFolder
from nemotron_rl.checkpoint.slicing import slice_checkpoint
from nemotron_rl.checkpoint.tokenizer import ChatTokenizer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sliced(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dst = tmp_path_factory.mktemp("upstream") / "sliced"
    slice_checkpoint(tiny, dst, [0, 1, 3, 4])
    return dst


def test_transformers_reads_the_patterns(tiny: Path, sliced: Path) -> None:
    transformers = pytest.importorskip("transformers")
    for folder, pattern in ((tiny, "MEM*EM-EMEM*EM-E"), (sliced, "ME*E")):
        config = transformers.AutoConfig.from_pretrained(folder)
        assert config.hybrid_override_pattern == pattern
        assert config.mtp_hybrid_override_pattern == "*E"
        assert (config.num_hidden_layers, config.num_nextn_predict_layers) == (len(pattern), 1)


def test_transformers_tokenizer_agrees_with_ours(tiny: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tiny), ChatTokenizer.from_folder(tiny)
    assert isinstance(theirs, transformers.PreTrainedTokenizerFast)
    chat = [{"role": "user", "content": "What is 17 * 3, é?\n"}, {"role": "assistant", "content": "51"}]
    for prompt in (True, False):
        text = theirs.apply_chat_template(chat, tokenize=False, add_generation_prompt=prompt)
        assert text == ours.render(chat, prompt)
        assert theirs.encode(text, add_special_tokens=False) == ours.encode(text)
        assert theirs.encode(text) == ours.encode(text)
        assert theirs.decode(theirs.encode(text), skip_special_tokens=True) == ours.decode(ours.encode(text))
    assert (theirs.eos_token_id, theirs.pad_token_id, theirs.bos_token_id) == (11, 0, 1)


def test_the_safetensors_library_reads_the_same_bits(sliced: Path) -> None:
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    folder = CheckpointFolder.open(sliced)
    for file in sliced.glob("*.safetensors"):
        for name, tensor in safetensors.load_file(file).items():
            assert tensor.contiguous().view(torch.uint8).numpy().tobytes() == folder.read(name).tobytes()


def test_transformers_loads_every_weight_and_its_forward_pass_is_sane(tiny: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.set_num_threads(1)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"]
    tokens = torch.randint(0, 512, (2, 16), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        out = model(tokens, output_hidden_states=True)
    assert 0.5 < out.logits.std() < 2
    sizes = [hidden.std().item() for hidden in out.hidden_states[:-1]]
    assert all(0.2 < size < 10 for size in sizes)


def test_transformers_computes_from_a_slice_what_our_engine_computes(sliced: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from nemotron_rl.rollout.reference.engine import ReferenceEngine
    from nemotron_rl.rollout.reference.load import folder_weights

    torch.set_num_threads(1)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        sliced, dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["mismatched_keys"]
    assert all(name.startswith("mtp.") for name in info["unexpected_keys"])
    engine = ReferenceEngine.from_folder(sliced, stop_tokens=[3])
    engine.receive(folder_weights(sliced), version=0)
    tokens = torch.randint(
        4, 500, (1, 16), generator=torch.Generator().manual_seed(0)
    )  # one chunk: upstream errs beyond
    with torch.no_grad():
        theirs = model(tokens).logits.log_softmax(-1)[0, :-1].gather(-1, tokens[0, 1:, None])[:, 0]
    (ours,) = engine.score([tuple(tokens[0].tolist())])
    torch.testing.assert_close(theirs, ours, atol=1e-3, rtol=0)  # their torch path clamps dt at time_step_min


_BRIDGE = """
import json, sys
from nemotron_rl.megatron.backend import activate
activate("cpu")
from megatron.bridge import AutoBridge
provider = AutoBridge.from_hf_pretrained(sys.argv[1]).to_megatron_provider(load_weights=False)
print(json.dumps([provider.hybrid_layer_pattern, provider.mtp_hybrid_override_pattern, provider.mtp_num_layers]))
"""


def test_megatron_bridge_reads_the_patterns(sliced: Path) -> None:
    if importlib.util.find_spec("megatron") is None:
        pytest.skip("megatron is not installed")
    done = subprocess.run([sys.executable, "-c", _BRIDGE, str(sliced)], capture_output=True, text=True, check=True)
    pattern, mtp, depth = json.loads(done.stdout.splitlines()[-1])
    assert (pattern.split("/")[0], mtp, depth) == ("ME*E", "*E", 1)
