"""What the papers claim, in their words, and the relation that is tested: ``claims.csv``.

    python reproduction/claims.py --papers FOLDER

compares every quotation with the texts of the papers (``FOLDER/*.md``, the names of which start as the keys do in
``TEXTS``) and names those that are not there.

The relation follows from the words that decide, by the rule in ``RULE``, and never from the results:

* *strict*: "outperforms", "better", "higher", "best", and so on;
* *at least*: "similarly or better", "works well", "no noticeable cost": not worse by more than a margin;
* *alike*: "comparable", "similar", "minimal": different by no more than a margin, either way;
* *in general*: "in general", "on most": strict, in the mean over the data sets;
* *exact*: a theorem or a formula, which needs no trials.

The margin is ours, since no paper states one: 0.02 is twice the standard deviation that the binary paper prints most
often, 0.05 what it calls small or minimal (.52 and .48, .61 and .57), and 0.1 of a time. A question of our own has no
quotation.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

Relation = Literal["strict", "at least", "alike", "in general", "exact"]
FILE = Path(__file__).parent / "claims.csv"
TEXTS = {
    "btg": ("btg",),
    "fbeta": ("fbeta",),
    "sigmoidf1": ("sigmoidf1",),
    "mfom": ("mfom",),
    "theory": ("btg", "fbeta", "npfl129"),
}
"""The papers that a claim may be quoted from, by the first part of its key."""
RULE: dict[str, Relation] = {
    "similarly or better": "at least",
    "comparable or better": "at least",
    "works well": "at least",
    "works in practice": "at least",
    "small loss": "at least",
    "comparable": "alike",
    "similar": "alike",
    "minimal effect": "alike",
    "no noticeable": "at least",
    "in general": "in general",
    "on most": "in general",
    "tended towards": "in general",
    "outperform": "strict",
    "better": "strict",
    "best": "strict",
    "higher": "strict",
    "greater": "strict",
    "lower": "strict",
    "below": "strict",
    "longer": "strict",
    "increase": "strict",
    "decrease": "strict",
    "prefer": "strict",
    "always": "strict",
    "difficult": "strict",
    "not be a good fit": "strict",
    "estimates": "strict",
    "minimize": "strict",
    "lipschitz continuous": "exact",
    "approach the limits": "exact",
    "approximates": "exact",
    "can be formulated": "exact",
    "maximum entropy": "exact",
}
"""The relation of each phrase; the longest phrase that the deciding words contain counts."""


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, or a question of our own.

    ``words`` are the words of ``quote`` that decide its relation ("" where nothing can be tested), ``tested`` is the
    difference that stands for it, and ``margin`` what counts as alike.
    """

    key: str
    where: str
    quote: str
    words: str
    relation: Relation
    margin: float
    tested: str

    @property
    def is_ours(self) -> bool:
        """Whether it is a question of our own."""
        return not self.quote


def relation_of(words: str) -> Relation | None:
    """Return the relation of the words that decide, None if the rule has none of them."""
    found = [phrase for phrase in RULE if phrase in words.lower()]
    return RULE[max(found, key=len)] if found else None


@cache
def load_claims(file: Path = FILE) -> dict[str, Claim]:
    """Return all claims by key."""
    claims = {}
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["relation"] not in get_args(Relation):
                raise ValueError(f"{row['key']}: expected a relation of {get_args(Relation)}, got {row['relation']}")
            claims[row["key"]] = Claim(**{**row, "margin": float(row["margin"] or 0)})  # type: ignore[arg-type]
    return claims


def plain(text: str) -> str:
    """Return a text without what a conversion from PDF changes: spaces, dollars, braces and marks of emphasis."""
    return re.sub(r"[\s$*{}\\]", "", text).replace("τ", "tau").replace("β", "beta").replace("π", "pi").lower()


def missing_quotes(claims: dict[str, Claim], folder: Path) -> list[str]:
    """Return the keys of the claims whose quotations are in no text that they may be from."""
    missing = []
    for claim in claims.values():
        starts = TEXTS[claim.key.partition("-")[0]]
        texts = [plain(file.read_text()) for file in sorted(folder.glob("*.md")) if file.name.startswith(starts)]
        if not any(plain(claim.quote) in text for text in texts):
            missing.append(claim.key)
    return missing


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and compare quotations with texts; exit code 1 when some are not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--papers", type=Path, required=True, help="the folder of the papers' texts")
    options = parser.parse_args(arguments)
    claims = {key: claim for key, claim in load_claims().items() if not claim.is_ours}
    missing = missing_quotes(claims, options.papers)
    for key in missing:
        print(f"{key}: not in the text: {claims[key].quote}", file=sys.stderr)
    print(f"{len(claims) - len(missing)} of {len(claims)} quotations are in the texts")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
