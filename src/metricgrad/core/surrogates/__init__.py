"""Surrogates: soft steps that turn logits into memberships in [0, 1].

A surrogate is a callable ``logits -> memberships``; any function or ``nn.Module`` of your own can be used. Those here
are frozen dataclasses, so they print, pickle and compare; ``Learned`` and ``Annealed`` change their numbers during
training.

The hard decision that each surrogate softens, and the limit in which it is reached:

=================  ==========================================  ============================  =======================
surrogate          membership                                  hard rule                     reaches it as
=================  ==========================================  ============================  =======================
``Linear``         five-point ramp of the probability          p ≥ τ                         width → 0 and delta → 0
``Sigmoid``        sigmoid(k(p − τ))                           p ≥ τ                         k → ∞
``LogitSigmoid``   sigmoid(β(z + η))                           z ≥ −η                        β → ∞
``Identity``       p itself                                    p ≥ ½                         –
``TopTwo``         ramp around the two largest probabilities   argmax                        width → 0 and delta → 0
``UnitsVsZeros``   MFoM's smooth error, from the labels        uses the labels               –
``Unbounded``      the logit itself                            none                          –
=================  ==========================================  ============================  =======================

For ``task="multiclass"`` a step (``Linear``, ``Sigmoid``, ``LogitSigmoid``) stands at the sample's own threshold,
midway between its two largest scores, and the memberships of a row are normalised to sum to one; with ``Linear`` this
is ``TopTwo``, the method of [tsoi2024]. There ``Identity`` is softmax and ``Hard`` the argmax.
"""

from typing import TYPE_CHECKING

from metricgrad.core.surrogates import mfom, simple, steps, wrappers
from metricgrad.core.surrogates.base import Surrogate as Surrogate
from metricgrad.core.surrogates.mfom import *  # noqa: F403
from metricgrad.core.surrogates.simple import *  # noqa: F403
from metricgrad.core.surrogates.steps import *  # noqa: F403
from metricgrad.core.surrogates.wrappers import *  # noqa: F403
from metricgrad.core.surrogates.wrappers import current_surrogate as current_surrogate

if not TYPE_CHECKING:  # type checkers read the imports above
    __all__ = sorted(["Surrogate", *mfom.__all__, *simple.__all__, *steps.__all__, *wrappers.__all__])
