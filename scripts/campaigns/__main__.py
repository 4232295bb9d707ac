"""Run campaigns: `scripts/campaign [NAME ...] [--rounds N] [--seed S]`."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import random
import sys
import time
import traceback
from types import ModuleType

import scripts.campaigns


def find_campaigns() -> dict[str, ModuleType]:
    """Return all campaigns by name."""
    names = [module.name for module in pkgutil.iter_modules(scripts.campaigns.__path__)]
    return {
        name: importlib.import_module(f"scripts.campaigns.{name}")
        for name in sorted(names)
        if name != "__main__"
    }


def main(arguments: list[str]) -> int:
    """Run what was asked for, one after another; the exit code is 1 when one of them failed."""
    campaigns = find_campaigns()
    options = _parse_arguments(campaigns, arguments)
    failed = [
        name
        for name in options.names or campaigns
        if not _succeeds(name, campaigns[name], options.rounds, options.seed)
    ]
    if failed:
        print(f"failed with --seed {options.seed}: {', '.join(failed)}")
    return 1 if failed else 0


def _parse_arguments(campaigns: dict[str, ModuleType], arguments: list[str]) -> argparse.Namespace:
    lines = [
        f"  {name:16} {_claim(module)} ({module.ROUNDS} rounds)"
        for name, module in campaigns.items()
    ]
    parser = argparse.ArgumentParser(
        prog="scripts/campaign",
        description="Try for long, at random, what the tests try in short. All campaigns are run"
        " unless some are named:",
        epilog="\n".join(["campaigns:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="run only these")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each of them tries")
    parser.add_argument(
        "--seed",
        type=int,
        metavar="S",
        default=random.randrange(1_000_000),
        help="makes the same choices again (a new one each time)",
    )
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in campaigns]:
        parser.error(f"there is no campaign called {', '.join(unknown)}")
    return options


def _claim(module: ModuleType) -> str:
    return (module.__doc__ or "").splitlines()[0].rstrip(".")


def _succeeds(name: str, campaign: ModuleType, rounds: int | None, seed: int) -> bool:
    rounds = campaign.ROUNDS if rounds is None else rounds
    print(f"{name}: {_claim(campaign)} ({rounds} rounds, seed {seed})", flush=True)
    began = time.monotonic()
    try:
        code = campaign.main(rounds, seed)
    except Exception:  # noqa: BLE001 - the other campaigns can still be run
        traceback.print_exc()
        code = 1
    print(f"{name}: {'failed' if code else 'passed'} in {time.monotonic() - began:.0f} s")
    return not code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
