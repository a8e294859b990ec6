"""The commands, one module for each or for a close family. `leadhand.cli.main` lists them."""
