"""`worldloom serve`: serve worlds to dm_env_rpc clients until SIGTERM or SIGINT."""

import argparse

from worldloom.server.commands.families import add_families
from worldloom.server.config import add_config_flags, read_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `worldloom serve`."""
    add_config_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; return the exit code."""
    config = read_config(args)
    add_families(config.family, config.model_dir, config.gym_id, config.gym_import, config.gym_kwarg)
    if config.texture_dir:
        from worldloom.worlds.randomisation.pictures import allow_texture_dirs

        allow_texture_dirs(config.texture_dir, config.limits.max_texture_frames)
    # Imported here: gRPC takes a while to load, and errors in options should appear at once.
    from worldloom.server.run import serve

    serve(config)
    return 0
