"""What the reproduction found, in sentences whose figures come from the results."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import binary_soft_sets as binary
import sigmoid_f1
from advice import QUESTIONS
from multiclass_f_beta import FEATURES, P, R
from page_tables import markdown
from verdicts import Results

TEXT_LOSS = "published, losses of the text"


def findings(results: Results) -> Iterator[str]:
    """Give the findings, numbered; one whose results are missing is left out."""
    found = [one(results) for one in (auroc_rows, every_label, beta_reversed, broken_baselines, tuned_rule)]
    for number, text in enumerate(filter(None, found), 1):
        yield f"{number}. {text}\n"


def auroc_rows(results: Results) -> str:
    """Return that the poor AUROC rows of the binary paper look like an artefact of its released code."""
    lines = []
    for data in binary.COMPARABLE:
        printed = binary.TABLES["btg-1"].printed["AUROC", data, "f1"][0]
        values = [
            results.mean("btg-1", protocol, "AUROC", data, "f1") for protocol in ("published", TEXT_LOSS, "corrected")
        ]
        if None in values:
            return ""
        lines.append([data, f"{printed:.2f}", *(f"{value:.2f}" for value in values)])
    table = markdown(["F1 of the AUROC loss", "printed", "released code", "the text's equations", "corrected"], lines)
    return (
        "**The binary paper's poor AUROC rows look like an artefact of the released code.** The paper concludes that "
        "training for AUROC does not pay. The code's loss leaves out the ends of the ROC curve and swaps τ and 1 − τ; "
        "with it our figures are the printed ones. With the loss that the text defines, everything else unchanged, "
        f"they are far higher.\n\n{table}"
    )


def every_label(results: Results) -> str:
    """Return that printed figures of sigmoidF1 are those of predicting every label."""
    printed = sigmoid_f1.TABLES["sigmoidf1-3"].printed
    parts = []
    for data in ("arXiv2020", "moviePosters"):
        p = printed["sigmoidF1", data, "precision @0.05"][0]
        pooled = printed["sigmoidF1", data, "micro f1 @0.05"][0]
        parts.append(f"{data}: P = {p:.4f}, 2P / (1 + P) = {2 * p / (1 + p):.4f}, printed {pooled:.4f}")
    return (
        "**Two of the four data sets of sigmoidF1's main table show a classifier that predicts every label.** Whoever "
        "does so has recall 1 and a pooled F1 of 2P / (1 + P), and the printed figures of sigmoidF1 agree with that to "
        f"the last digit ({'; '.join(parts)})."
    )


def beta_reversed(results: Results) -> str:
    """Return that the multi-class paper's text has its β the wrong way round."""
    values = [results.mean("fbeta-1", "published", row, FEATURES, "recall") for row in (P, R)]
    if None in values:
        return ""
    return (
        "**The multi-class paper's text has β the wrong way round.** It prefers precision with β = 5 and recall with "
        "β = 0.25; by its own equation 6 that is reversed, and so it comes out: on CIFAR-10 features β = 5 has a "
        f"recall of {values[0]:.2f} for the class, β = 0.25 one of {values[1]:.2f}."
    )


def broken_baselines(results: Results) -> str:
    """Return that two baselines of the binary paper have no useful gradient in the released code."""
    gaps = {}
    for protocol in ("published", "corrected"):
        found = [
            results.difference("btg-1", protocol, "F1", "Dice", data, "f1", other_table="btg-7") for data in binary.SETS
        ]
        if None in found:
            return ""
        gaps[protocol] = fmean(d.mean for d in found if d is not None)
    aurocs = [
        [results.mean("btg-1", protocol, row, data, "auroc") for data in binary.SETS]
        for protocol, row in (("corrected", "WMW"), ("corrected", "BCE"))
    ]
    if any(None in values for values in aurocs):
        return ""
    means = [fmean(v for v in values if v is not None) for values in aurocs]
    return (
        "**Two baselines of the binary paper could not win.** The code's Dice loss is taken row by row, where "
        "negatives have no gradient, and its WMW loss compares positives with positives. Soft F1 − Dice is "
        f"{gaps['published']:+.3f} in F1 with that code, and {gaps['corrected']:+.3f} with Dice of a batch; WMW as "
        f"defined has an AUROC of {means[0]:.3f}, where BCE has {means[1]:.3f} (means over four sets)."
    )


def tuned_rule(results: Results) -> str:
    """Return that tuning the threshold of cross-entropy brings most of what metric losses bring."""
    question = QUESTIONS[0]
    means = {}
    for name in ("cross-entropy at 0.5", "cross-entropy, tuned", "soft F1 at 0.5"):
        row, metric = question.contenders[name]
        values = [results.mean(question.table, "corrected", row, data, metric) for data in question.sets]
        if None in values:
            return ""
        means[name] = fmean(value for value in values if value is not None)
    return (
        "**The missing baseline is cross-entropy with a tuned threshold.** No paper tunes it on validation rows. On "
        "the four tables of the binary paper its F1 is "
        f"{means['cross-entropy at 0.5']:.3f} at 0.5 and {means['cross-entropy, tuned']:.3f} with a threshold from "
        f"validation rows; soft F1 at 0.5 has {means['soft F1 at 0.5']:.3f}."
    )
