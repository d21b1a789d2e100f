"""The papers' words and the relations that follow from them, apart from any results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import claims
from claims import Claim, load_claims, missing_quotes, relation_of
from papers import PAPERS
from verdicts import Results

CLAIMS = load_claims()


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_the_relation_follows_from_the_words(claim: Claim) -> None:
    if claim.words:
        assert claim.words in claim.quote
        assert relation_of(claim.words) == claim.relation
    assert claim.is_ours == (claim.where == "our question")
    assert (claim.margin > 0) == (claim.relation in ("at least", "alike"))


@pytest.mark.parametrize(
    ("words", "relation"),
    [
        ("outperforms", "strict"),
        ("perform similarly or better than", "at least"),
        ("comparable performance", "alike"),
        ("comparable or better", "at least"),
        ("In general", "in general"),
        ("nothing of the kind", None),
    ],
)
def test_the_longest_phrase_counts(words: str, relation: str | None) -> None:
    assert relation_of(words) == relation


def test_every_claim_has_one_verdict_and_every_verdict_a_claim(tmp_path: Path) -> None:
    results = Results.load(tmp_path)
    keys = [verdict.claim.key for paper in PAPERS for verdict in paper.verdicts(results)]
    assert keys == list(CLAIMS)


def test_quotations_are_short() -> None:
    assert max(len(claim.quote) for claim in CLAIMS.values()) < 160


def test_a_quotation_that_is_not_in_the_text_is_named(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "btg-binary.md").write_text("Our method *outperforms*\nbaselines on $F_1$ -Score.")
    (tmp_path / "mfom.md").write_text("It works.")
    known = Claim("btg-a", "§1", "outperforms baselines on F_1 -Score", "outperforms", "strict", 0.0, "a − b")
    elsewhere = Claim("mfom-a", "§1", "outperforms baselines", "outperforms", "strict", 0.0, "a − b")
    assert missing_quotes({"btg-a": known, "mfom-a": elsewhere}, tmp_path) == ["mfom-a"]
    monkeypatch.setattr(claims, "load_claims", lambda: {"btg-a": known, "mfom-a": elsewhere})
    assert claims.main(["--papers", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == "1 of 2 quotations are in the texts\n"
    assert printed.err == "mfom-a: not in the text: outperforms baselines\n"


def test_an_unknown_relation_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "claims.csv"
    file.write_text("key,where,quote,words,relation,margin,tested\na,,,,roughly,,a − b\n")
    with pytest.raises(ValueError, match=r"a: expected a relation of .*, got roughly"):
        load_claims(file)
