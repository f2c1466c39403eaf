"""Programs that tests of the page and of metrics need: scripts/setup-browser.sh fetches them."""

import os

import pytest

needs_web_programs = pytest.mark.skipif(
    os.environ.get("WORLDLOOM_SKIP_BROWSER") == "1", reason="WORLDLOOM_SKIP_BROWSER=1"
)
"""Chromium, axe-core, prometheus or promtool. Without that variable a test fails where they are missing."""
