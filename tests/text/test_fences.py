"""Fenced code in Markdown."""

from __future__ import annotations

import pytest

from taskweaver_ext.text.fences import Fence, code_fences


@pytest.mark.parametrize(
    ("text", "fences"),
    [
        ("no code", []),
        ("a\n```python\nx = 1\n\ny\n```\nb", [Fence("python", "x = 1\n\ny", 1, "")]),
        ("```bash\nls\n```\n~~~ JS title\n1\n~~~", [("bash", "ls"), ("js", "1")]),
        ("````python\n```\nstill\n```\n````", [("python", "```\nstill\n```")]),
        ("- item\n  ```sh\n  cd\n    pwd\n  ```", [Fence("sh", "cd\n  pwd", 1, "  ")]),
        ("> ```sh\n> ls\n> ```", [("sh", "ls")]),
        ("```python\nnever closed", [("python", "never closed")]),
        ("```\nno language\n```\n```text\nwords\n```", []),
        ("```{.python .numberLines}\n1\n```", [("python", "1")]),
        ("```python inline``` is no fence\n```py\n1\n```", [("py", "1")]),
    ],
)
def test_blocks_that_name_their_language_are_found(
    text: str, fences: list[Fence | tuple[str, str]]
) -> None:
    found = code_fences(text)

    expected = [one if isinstance(one, Fence) else (one[0], one[1]) for one in fences]
    assert [
        one if isinstance(want, Fence) else (one.language, one.code)
        for one, want in zip(found, expected, strict=True)
    ] == expected
