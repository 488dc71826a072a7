"""The entropy bonus: keeps a policy from becoming certain too early.

B samples · L tokens
"""

from __future__ import annotations

from torch import Tensor

from nemotron_rl.rl.losses import LossTerms

METRIC = "train/entropy"


def with_entropy(terms: LossTerms, entropy_BL: Tensor, coef: float) -> LossTerms:
    """loss - coef * entropy of each token, and the entropy among what is reported.

    The entropy, in nats, is that of the distribution a token was drawn from; with a gradient where the bonus is to have
    one. Tokens weigh in it as in the loss. Mnih et al., A3C (arXiv 1602.01783), the entropy term of the objective, here
    of a loss and therefore with the other sign.
    """
    loss_BL = terms.loss_BL - coef * entropy_BL if coef else terms.loss_BL
    return LossTerms(loss_BL, terms.means | {METRIC: entropy_BL.detach()})
