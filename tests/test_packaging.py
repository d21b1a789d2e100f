"""The wheel: what it holds, and that its description makes sense on PyPI."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

import metricgrad as mg

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    pytest.importorskip("hatch_fancy_pypi_readme")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    return message_from_string(wheel.read(name).decode())


def test_the_wheel_holds_the_package_whole(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src" / "metricgrad"
    expected = {
        f"metricgrad/{path.relative_to(source).as_posix()}"
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == expected
    assert {"metricgrad/py.typed", "metricgrad/__init__.pyi"} <= found


def test_the_description_needs_no_clone(metadata: Message) -> None:
    text = metadata.get_payload()
    assert isinstance(text, str)
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert text.startswith("# metricgrad\n\n**A drop-in PyTorch loss")
    assert "pip install 'metricgrad[app,demo]' && metricgrad demo" in text
    assert "constraints.txt" not in text
    assert "<!--" not in text
    links = re.findall(r"\]\(([^)]*)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    assert [link for link in links if not link.startswith("https://")] == []
    for title in ("## I train networks", "## I have a table", "## Does it help?", "## What you can rely on"):
        assert title in text


def test_one_version_everywhere(metadata: Message) -> None:
    assert metadata["Version"] == mg.__version__
    assert f"\nversion: {mg.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == mg.__version__


def test_every_python_that_is_declared_is_tried() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    declared = [found[1] for one in classifiers if (found := re.fullmatch(r".* :: Python :: (3\.\d+)", one))]
    workflows = {name: (ROOT / ".github" / "workflows" / name).read_text() for name in ("release.yml", "tests.yml")}
    tried = [json.loads(re.findall(r"python: (\[.*\])", text)[0]) for text in workflows.values()]
    assert tried == [["3.11", "3.12", "3.13"]] * 2
    assert declared
    assert set(declared) <= set(tried[0])
    assert "secrets." not in workflows["release.yml"]  # PyPI trusts the workflow itself
