"""Judges nets on fixed inputs: python benchmarks/quality --faces ../shared/faces [--weights FILE …] [--output DIR]"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # the folder of the package, so that its modules find each other

from quality.command import main  # noqa: E402

if __name__ == "__main__":
    main()
