"""The docs say what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_errors_lists_every_sentence():
    """python docs/list_messages.py brings the page up to date."""
    done = subprocess.run([sys.executable, "docs/list_messages.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "docs/errors.md is behind the sources; run python docs/list_messages.py"
