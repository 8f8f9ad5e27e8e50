"""Tests of ``gpen serve``."""
