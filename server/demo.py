"""`worldloom demo`: not written yet."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take no options."""


def run(args: argparse.Namespace) -> int:
    """Say so."""
    raise RuntimeError("this command is not written yet")
