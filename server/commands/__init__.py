"""Subcommands of the worldloom command line, a module for each."""
