"""Texts with several labels, a tokenizer of their words and a small new model, for ``huggingface_trainer.py``."""

from __future__ import annotations

import random
from typing import Any

import tokenizers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

TOPICS = ["price bill refund", "login password account", "late parcel courier", "crash error bug", "sue lawyer court"]
OTHERS = "please thanks the my is again when help not hello"


def write_tickets(rows: int, seed: int) -> tuple[list[str], list[list[float]]]:
    """Return texts with a word of each of their topics, and their labels; the later a topic, the rarer."""
    draw = random.Random(seed)  # noqa: S311 (no secret)
    texts = []
    targets = []
    for _ in range(rows):
        labels = [float(draw.random() < 0.25 / (1 + place)) for place in range(len(TOPICS))]
        words = [draw.choice(topic.split()) for topic, label in zip(TOPICS, labels, strict=True) if label]
        words += draw.choices(OTHERS.split(), k=4)
        texts.append(" ".join(draw.sample(words, len(words))))
        targets.append(labels)
    return texts, targets


def read_tickets(tokenizer: Any, rows: int, seed: int) -> list[dict[str, Any]]:
    """Return tickets as ``Trainer`` takes them."""
    texts, targets = write_tickets(rows, seed)
    return [{**tokenizer(text), "labels": labels} for text, labels in zip(texts, targets, strict=True)]


def make_tokenizer() -> Any:
    """Return a tokenizer whose tokens are the words above."""
    words = ["[PAD]", "[CLS]", *" ".join([*TOPICS, OTHERS]).split()]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A", special_tokens=[("[CLS]", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]")  # noqa: S106 (no password)


def make_model(tokenizer: Any) -> Any:
    """Return a network of one layer; without dropout, so that parts of a batch give what the batch gives."""
    size: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    size |= {"vocab_size": len(tokenizer), "num_labels": len(TOPICS), "initializer_range": 0.3}
    config = BertConfig(**size, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config.problem_type = "multi_label_classification"
    return BertForSequenceClassification(config)
