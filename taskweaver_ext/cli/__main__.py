"""Where the program begins: with hardly anything imported, so that Ctrl-C is heard at once."""

import os
import signal

EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit."""
    # KeyboardInterrupt would be raised in the midst of an import: a traceback, or lost.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    from taskweaver_ext.cli.main import main as run_command_line

    run_command_line()


if __name__ == "__main__":
    main()
