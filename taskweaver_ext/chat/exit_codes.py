"""What the exit codes of our commands mean; `exec` passes on those of its program besides."""

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_MISUSED = 2
EXIT_TIMED_OUT = 124
EXIT_OUR_FAILURE = 125
"""Of `exec`: a failure that is not the program's."""
EXIT_INTERRUPTED = 130
