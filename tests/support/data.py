"""Where recorded cases lie."""

from pathlib import Path

DATA = Path(__file__).parent.parent / "data"
