"""Which nets there are, where their files lie, whether they are whole. Torch-free except ``load.py``."""
