"""Pictures in and out: reading, writing, and what travels with them."""
