"""What happens to people's files when things go wrong: kills, full disks, vanishing folders, damaged pictures.

The short form is part of the test run; ``make faults`` (GPEN_FAULTS=long) runs the long one and writes the table of
docs/reliability.md.
"""
