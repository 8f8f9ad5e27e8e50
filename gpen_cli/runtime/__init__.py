"""Nets made ready to run: uint8 RGB in, uint8 RGB out."""
