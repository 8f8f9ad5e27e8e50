"""The old script: ``python inference_gpen.py -i photo.jpg``. Its flags are in ``gpen_cli/cli/old_script.py``."""

from __future__ import annotations

import sys

from gpen_cli.__main__ import whole_program

if __name__ == "__main__":
    with whole_program():
        from gpen_cli.cli.old_script import main

        sys.exit(main(sys.argv[1:]))
