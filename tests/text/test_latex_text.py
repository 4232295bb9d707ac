"""Formulas become text that a person can read, whatever state they are in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskweaver_ext.text.latex_text import MAX_CHARS, latex_to_text


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"$\displaystyle \frac{x^{2} + 1}{\sqrt{2 \pi}}$", "(x² + 1)/(√(2 π))"),
        (r"\sum_{i=0}^{n} x_i \leq \infty", "∑ᵢ₌₀ⁿ xᵢ ≤ ∞"),
        (r"\int_0^\infty e^{-x^2} dx", "∫₀^∞ e^(-x²) dx"),
        (r"\left[\begin{matrix}1 & 2\\3 & 4\end{matrix}\right]", "[\n1 2\n3 4\n]"),
        (r"a \text{ if } b", "a if b"),
        (r"\frac12", "1/2"),
        (r"50\% \{a\}", "50% {a}"),
        ("x^", "x^"),
        ("", ""),
    ],
)
def test_formulas_can_be_read(latex: str, text: str) -> None:
    assert latex_to_text(latex) == text


@given(st.text(alphabet="\\frac{}^_&$ sqrt1a%\n", max_size=200))
def test_no_formula_is_too_broken(latex: str) -> None:
    assert isinstance(latex_to_text(latex), str)


def test_what_is_too_deep_or_too_long_is_left_as_it_is() -> None:
    deep = "{" * 1000 + "x"

    assert latex_to_text(deep) == deep
    assert latex_to_text("x" * (MAX_CHARS + 1)) == "x" * (MAX_CHARS + 1)
