"""Proof by exhaustion and by chance: explores every state of a small world, walks at random through a large one."""
