"""What several updates report together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nemotron_rl.megatron.update import MtpReport, Update, summed_up


def update(response_tokens: int, clipped: int, mtp: dict[int, MtpReport], lr: float) -> Update:
    return Update(
        loss=float(clipped),
        grad_norm=2.0 * clipped,
        lr=lr,
        means={"train/clip_fraction": clipped / response_tokens},
        response_tokens=response_tokens,
        tokens=2 * response_tokens,
        padding=0.5,
        mtp=mtp,
        mtp_grad_norm=float(clipped) if mtp else None,
    )


def test_one_update_is_reported_as_it_is() -> None:
    one = update(3, 1, {}, 0.1)
    assert summed_up([one]) is one


def test_means_are_over_the_tokens_of_all_updates_and_norms_over_updates() -> None:
    first = update(10, 1, {0: MtpReport(loss=2.0, acceptance=0.5, targets=10)}, 0.1)
    second = update(30, 9, {0: MtpReport(loss=4.0, acceptance=1.0, targets=30), 1: MtpReport(1.0, 0.0, 3)}, 0.2)
    both = summed_up([first, second])
    assert both.means["train/clip_fraction"] == pytest.approx(10 / 40)
    assert both.mtp == {0: MtpReport(loss=3.5, acceptance=0.875, targets=40), 1: MtpReport(1.0, 0.0, 3)}
    assert (both.loss, both.grad_norm, both.lr, both.mtp_grad_norm) == (5.0, 10.0, 0.2, 5.0)
    assert (both.response_tokens, both.tokens, both.updates) == (40, 80, 2)
    assert both.padding == pytest.approx(0.5)


def test_the_largest_of_several_updates_is_the_largest() -> None:
    one, other = (replace(update(n, 0, {}, 0.1), means={"routing/bias_change_max": 1 / n}) for n in (10, 30))
    assert summed_up([one, other]).means == {"routing/bias_change_max": 0.1}


def test_no_mtp_loss_stays_none() -> None:
    both = summed_up([update(1, 1, {}, 0.1), update(2, 1, {}, 0.1)])
    assert both.mtp_loss is None and both.mtp_grad_norm is None
    assert "train/mtp_loss" not in both.metrics("train")
