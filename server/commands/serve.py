"""`worldloom serve`: worlds for any dm_env_rpc client, until SIGTERM or SIGINT."""

import argparse

from worldloom.server.commands.families import add_families
from worldloom.server.config import add_config_flags, read_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `worldloom serve`."""
    add_config_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Serve."""
    config = read_config(args)
    add_families(config.family, config.model_dir)
    # Imported here: gRPC takes a while to load, and a wrong option is told at once.
    from worldloom.server.run import serve

    serve(config)
    return 0
