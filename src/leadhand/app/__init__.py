"""The application: Lead and its parts put together, and the doors other processes use."""

from leadhand.app.lead import Lead
from leadhand.app.outcome import Outcome, Steps

__all__ = ["Lead", "Outcome", "Steps"]
