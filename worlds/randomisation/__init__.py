"""Randomisation: what varies between lanes that show the same family, drawn from seeds and numbers alone."""
