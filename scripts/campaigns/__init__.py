"""Long campaigns: what the tests try a few times, tried hundreds of times at random.

Each module here is one: the first line of its docstring says what it shows, `ROUNDS` how often it
tries by default, and `main(rounds, seed)` plays so many rounds and returns an exit code. A failed
assertion is a failure too. A seed repeats a campaign's choices, if not the machine's.
"""
