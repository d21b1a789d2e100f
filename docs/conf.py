"""Configuration of the documentation site; ``./check --docs`` builds it into build/docs.

Written anew in every build, and ignored by git: docs/reference/ (from the public names), docs/tutorials/ (from
examples/tutorials, by running them), docs/repository/ (pages that include files from outside docs/), docs/_report/ (the
demo's report, by running it). METRICGRAD_REPOSITORY is the address of the repository, for a link in the header.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("KERAS_BACKEND", "torch")  # before anything imports Keras
os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.path.insert(0, str(Path(__file__).parent / "_site"))

import demo_report
import latex2mathml.converter
import links
import reference_pages
import repository_pages
import torch
from docutils import nodes
from sphinx.ext import autosummary

import metricgrad

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator as HTMLTranslator

torch.set_num_threads(1)  # the tutorials are small: a second thread would only wait

project = "metricgrad"
author = "the authors of metricgrad"
copyright = author  # noqa: A001  # the name that Sphinx wants
version = release = metricgrad.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_site", "_report"]
templates_path = ["_templates"]
nitpicky = True

# Links to the docs of others need the network.
if os.environ.get("METRICGRAD_INTERSPHINX"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "torch": ("https://docs.pytorch.org/docs/stable", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
    }

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 4

autosummary_generate = True
# A summary does not end within a citation: [tsoi2022, eq. 5].
autosummary.WELL_KNOWN_ABBREVIATIONS += ("eq.", "eqs.", "sec.", "fig.", "alg.", "ch.", "p.", "no.")
autodoc_typehints = "none"  # the docstrings have the types, in words
autodoc_member_order = "bysource"
# scikit-learn adds these to every estimator.
autodoc_default_options = {
    "exclude-members": "set_fit_request, set_partial_fit_request, set_predict_request, set_score_request"
}
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples/tutorials",
    "gallery_dirs": "tutorials",
    "filename_pattern": "/plot_",
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": None,
    "reset_modules": ("matplotlib", "gallery_type.enlarge_type"),
    "thumbnail_size": (640, 420),
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 120,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
}

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = "metricgrad"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_report"]
html_copy_source = False
html_domain_indices = False
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is
html_math_renderer = "mathml"
html_theme_options = {
    "logo": {"text": "metricgrad"},
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "navbar_end": ["release", "theme-switcher", "navbar-icon-links"],
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
if repository := os.environ.get("METRICGRAD_REPOSITORY"):
    html_theme_options["icon_links"] = [{"name": "Repository", "url": repository, "icon": "fa-brands fa-git-alt"}]
html_sidebars = {"index": []}


def strip_code(_: Sphinx, doctree: nodes.document) -> None:
    """Take the last empty line off code: doctest needs one before the fence, readers do not."""
    for block in doctree.findall(nodes.literal_block):
        block.rawsource = block.astext().rstrip("\n")  # of the same text, or it is not highlighted
        block[:] = [nodes.Text(block.rawsource)]


def write_math(translator: HTMLTranslator, node: nodes.Element) -> None:
    """Write a formula as MathML, which browsers draw by themselves: no script, and none from another site."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    translator.body.append(latex2mathml.converter.convert(node.astext(), display=display))
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Write the pages that are made from the code, and link what is written as plain text."""
    app.connect("config-inited", lambda app, _: reference_pages.write(Path(app.srcdir)))
    app.connect("config-inited", lambda app, _: repository_pages.write(Path(app.srcdir)))
    app.connect("config-inited", lambda app, _: demo_report.write(Path(app.srcdir)))
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
    app.connect("source-read", links.link_pages)
    app.connect("doctree-read", strip_code)
    app.connect("autodoc-process-docstring", links.link_docstrings, priority=400)  # before numpydoc's
