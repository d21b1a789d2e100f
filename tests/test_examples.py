"""The recipes in examples/ run, print one line and learn; in parts they do exactly what they do on whole batches."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

# Each recipe, what it needs, and the sizes of the parts of a batch of 1024 to compare.
RECIPES: dict[str, tuple[str, tuple[int | None, int] | None]] = {
    "plain_pytorch": ("torch", None),
    "lightning_module": ("lightning", (None, 256)),
    "huggingface_trainer": ("transformers", None),
    "accelerate_loop": ("accelerate", (1024, 256)),
    "skorch_net": ("skorch", None),
    "keras_sigmoid_f1": ("keras", None),
    "monai_segmentation": ("monai", None),
}

# These log, stop and keep a checkpoint by the metric.
KEEP_THE_BEST = ("plain_pytorch", "lightning_module", "accelerate_loop", "skorch_net", "keras_sigmoid_f1")


@pytest.fixture
def recipe(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip(RECIPES[request.param][0])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module(request.param)


# Lightning asks torch in a way that is on its way out.
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
# So does Keras, of numpy, when it saves weights of torch.
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")
@pytest.mark.parametrize(("recipe", "name"), [(name, name) for name in RECIPES], indirect=["recipe"])
def test_recipes_learn(recipe: Any, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = RECIPES[name][1]
    found = [recipe.main(micro) for micro in sizes] if sizes else [recipe.main()]
    for got in found:
        assert got["after"] > got["before"] + 0.2
        assert got["after"] > 0.6
        if name in KEEP_THE_BEST:
            assert 0.6 < got["best"] <= 1  # what the log says of the epoch that was kept
    lines = [line for line in capsys.readouterr().out.splitlines() if "F1" in line]  # some trainers print their own
    assert len(lines) == len(found)
    if sizes:
        whole, parts = (got["weights"] for got in found)
        for key, weights in whole.items():
            torch.testing.assert_close(parts[key], weights, rtol=1e-3, atol=1e-4)


def test_ddp_learns(tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(EXAMPLES / "ddp.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    match = re.fullmatch(r"DDP: F1 (0\.\d+) of 2 processes after epoch 10\n", done.stdout)
    assert match, done.stdout
    assert float(match[1]) > 0.6


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_recipes_are_short(path: Path) -> None:
    assert sum(1 for line in path.read_text().splitlines() if line.strip()) <= 70
