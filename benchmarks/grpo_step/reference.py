"""TRL's side: the training loop of its GRPOTrainer on transformers' model, samples given in place of a rollout."""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.grpo_step.work import BETAS, CLIP_GRAD, CLIP_HIGH, CLIP_LOW, EPS, LEARNING_RATE, FirstUpdate, Work

if TYPE_CHECKING:
    from torch import Tensor

UPDATES = 10_000
"""More than anybody asks for."""


def serve(link: Any, work: Work, chunk_size: int) -> None:
    """Answer requests until the last: an update with its seconds, from the loop's begin of a step to its end."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOTrainer

    torch.set_num_threads(work.threads)
    # A time step below time_step_min is raised to it only here: neither mamba-ssm's kernels nor ours do that.
    model = AutoModelForCausalLM.from_pretrained(
        work.start, dtype=torch.float32, chunk_size=chunk_size, time_step_min=0.0, use_cache=False
    )
    inputs = _inputs(work)
    losses: list[float] = []

    class Given(GRPOTrainer):  # type: ignore[misc]
        """Samples that are there already, and a record of the losses."""

        def _generate_and_score_completions(self, _: Any) -> dict[str, Tensor]:
            return dict(inputs)

        def training_step(self, *arguments: Any) -> Tensor:
            loss: Tensor = super().training_step(*arguments)
            losses.append(float(loss))
            return loss

    class Answers(TrainerCallback):  # type: ignore[misc]
        """Lets the loop make a step when one is asked for."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.perf_counter()

        def on_pre_optimizer_step(self, _: Any, state: Any, __: Any, **___: Any) -> None:
            if state.global_step == 0:
                self.first = FirstUpdate(sum(losses), _gradients(model))

        def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
            seconds = time.perf_counter() - self.began
            link.send(self.first if state.global_step == 1 else seconds)
            control.should_training_stop = link.recv() == "stop"

    with tempfile.TemporaryDirectory() as folder:
        trainer = Given(
            model,
            reward_funcs=[_no_reward],
            args=_settings(work, folder),
            train_dataset=Dataset.from_dict({"prompt": ["1"] * UPDATES}),
            processing_class=AutoTokenizer.from_pretrained(work.start),
            callbacks=[Answers()],
        )
        trainer.train()


def _settings(work: Work, folder: str) -> Any:
    from trl import GRPOConfig

    accumulated = len(work.samples) // work.micro_batch_size
    return GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=work.micro_batch_size,
        gradient_accumulation_steps=accumulated,
        steps_per_generation=accumulated,
        num_generations=len(work.samples),
        max_steps=UPDATES,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        adam_epsilon=EPS,
        weight_decay=0.0,
        max_grad_norm=CLIP_GRAD,
        loss_type="dapo",  # the mean over all tokens
        beta=0.0,
        epsilon=CLIP_LOW,
        epsilon_high=CLIP_HIGH,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def _no_reward(completions: list[Any], **_: Any) -> list[float]:
    raise AssertionError("the samples have advantages")


def _inputs(work: Work) -> dict[str, Tensor]:
    """The samples as TRL lays them out: prompts padded on the left, responses on the right."""
    import torch
    from trl.trainer.utils import pad

    def padded(rows: list[Any], side: str) -> Tensor:
        padded_BL: Tensor = pad([torch.tensor(row) for row in rows], padding_value=0, padding_side=side)
        return padded_BL

    prompts, responses = [one.prompt for one in work.samples], [one.response for one in work.samples]
    mask_BL = padded([[1] * len(row) for row in responses], "right")
    return {
        "prompt_ids": padded(prompts, "left"),
        "prompt_mask": padded([[1] * len(row) for row in prompts], "left"),
        "completion_ids": padded(responses, "right"),
        "completion_mask": mask_BL,
        "advantages": torch.tensor([one.advantage for one in work.samples]),
        "old_per_token_logps": padded([one.old_logprobs for one in work.samples], "right"),
        "num_items_in_batch": mask_BL.sum(),
    }


def _gradients(model: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Under the names of the checkpoint, where each expert has a matrix of its own."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    for name, parameter in model.named_parameters():
        name = name.replace("model.", "backbone.", 1)
        gradient = parameter.grad.numpy().copy()
        if ".experts." in name and not name.endswith(".weight"):
            place, kind = name.rsplit(".", 1)
            found |= {f"{place}.{expert}.{kind}.weight": matrix for expert, matrix in enumerate(gradient)}
        else:
            found[name] = gradient
    return found
