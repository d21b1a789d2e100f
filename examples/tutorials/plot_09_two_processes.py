"""
Exact on two processes
======================

The mean of the F1 of two halves is not the F1 of the whole. Data-parallel training averages gradients of halves, so
with a metric loss it trains on another objective, unless the counts are added first: ``process_group="world"``.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import metricgrad as mg

# %%
# A script for two processes
# --------------------------
#
# A script for two processes. Each has its own rows: the first most of the positives, the second few. Both compute the
# gradient of a linear model under ``DistributedDataParallel``, which averages it over the processes.

SCRIPT = """
import json, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import metricgrad as mg

dist.init_process_group("gloo")
x, y = torch.load(sys.argv[1])
mine = slice(0, 300) if dist.get_rank() == 0 else slice(300, None)
found = {}
for name, group in [("each its own F1", None), ("counts added", "world")]:
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 1)
    parallel = DistributedDataParallel(model)
    loss = mg.MetricLoss("f1", process_group=group)
    loss(parallel(x[mine]).squeeze(1), y[mine]).backward()
    found[name] = model.weight.grad.flatten().tolist()
if dist.get_rank() == 0:
    print(json.dumps(found))
dist.destroy_process_group()
"""

g = torch.Generator().manual_seed(0)
x = torch.randn(1000, 5, generator=g)
y = (x[:, 0] + 0.5 * torch.randn(1000, generator=g) > 1.2).float()
order = (y * 2 + torch.rand(1000, generator=g)).argsort(descending=True)
x, y = x[order], y[order]  # positives first: shards are rarely as uneven, and never even

# %%
# Started with torchrun
# ---------------------
#
# Started as on a cluster, with torchrun:

with tempfile.TemporaryDirectory() as folder:
    torch.save((x, y), Path(folder) / "rows.pt")
    (Path(folder) / "two.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    path = os.pathsep.join(filter(None, (str(Path(mg.__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [*command, f"{folder}/two.py", f"{folder}/rows.pt"],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
gradients = {name: torch.tensor(values) for name, values in json.loads(done.stdout).items()}

# %%
# Compared with one process
# -------------------------
#
# One process with all rows says what is right:

torch.manual_seed(0)
model = torch.nn.Linear(5, 1)
mg.MetricLoss("f1")(model(x).squeeze(1), y).backward()
gradients["one process"] = whole = model.weight.grad.flatten()
for name, gradient in gradients.items():
    print(f"{name:16s} relative error {(gradient - whole).norm() / whole.norm():.1e}")

# %%
# The price
# ---------
#
# The option costs one exchange of four numbers per class and step; uneven and empty shards are exact too. :doc:`/scale`
# has what it takes on a thousand processes.

figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
for i, name in enumerate(("one process", "counts added", "each its own F1")):
    ax.bar([k + 0.27 * (i - 1) for k in range(5)], gradients[name].tolist(), 0.25, label=name)
ax.set(xlabel="weight", ylabel="gradient")
ax.axhline(0, color="grey", linewidth=0.8)
ax.legend()
plt.show()
