"""Texts that break out of files whose writer did not expect them."""

from __future__ import annotations

MARKUP_TEXTS = [
    "",
    " ",
    "\n\n\n",
    "```\nout\n```",
    "````md\n```\n````",
    "~~~\nout",
    "`" * 50 + "x",
    "``` unclosed",
    "> quoted\n\n# heading",
    "<!-- unclosed",
    "<details><summary>x",
    "- ```\n<script>x</script>\n```\n<script>y</script>",
    "`<script>`</script> \\`<b>x`",
    "| a | b |\n|---|---|\n| `|` |",
    "\x00\x01\x1b[31mred\x1b[0m\x07",
    "\ud800 half a character",
    "\u2028line\u2029paragraph\x85next",
    "\u202eright to left",
    "%%bash\nrm -rf /",
    "x" * 100_000,
    "a\r\nb\rc",
    "---\ntitle: yaml\n---",
    "[x](javascript:alert(1))",
    '{"cells": []}',
    "../../etc/passwd",
    "\\" * 100,
    "&lt;script&gt;",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 👩‍👩‍👧",
]
