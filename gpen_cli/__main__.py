"""``python -m gpen_cli`` is ``gpen``."""

from gpen_cli.cli.main import run

run()
