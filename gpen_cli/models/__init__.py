"""The nets. Torch lives here and above."""
