"""LaTeX formulas as text that a person can read: symbols, powers, fractions, roots, matrices.

Pure: text in, text out, in linear time. What is not known is left as it is written.
"""

from __future__ import annotations

import re

MAX_DEPTH = 30
"""How deep groups may be inside each other; a formula beyond that is left as it is."""
MAX_CHARS = 20_000

_NAMES = (
    "alpha α beta β gamma γ delta δ epsilon ε varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι"
    " kappa κ lambda λ mu μ nu ν xi ξ pi π rho ρ sigma σ tau τ upsilon υ phi φ varphi φ chi χ"
    " psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Phi Φ Psi Ψ Omega Ω"
    " times × cdot · div ÷ pm ± mp ∓ ast ∗ star ⋆ circ ∘ leq ≤ le ≤ geq ≥ ge ≥ neq ≠ ne ≠"
    " approx ≈ equiv ≡ sim ∼ simeq ≃ propto ∝ ll ≪ gg ≫ infty ∞ partial ∂ nabla ∇ sum ∑ prod ∏"
    " int ∫ oint ∮ in ∈ notin ∉ subset ⊂ subseteq ⊆ supset ⊃ cup ∪ cap ∩ emptyset ∅ forall ∀"
    " exists ∃ neg ¬ land ∧ lor ∨ wedge ∧ vee ∨ to → rightarrow → leftarrow ← Rightarrow ⇒"
    " Leftarrow ⇐ leftrightarrow ↔ Leftrightarrow ⇔ mapsto ↦ implies ⇒ iff ⇔ ldots … cdots ⋯ dots …"
    " vdots ⋮ ddots ⋱ hbar ℏ ell ℓ Re ℜ Im ℑ angle ∠ perp ⊥ parallel ∥ mid | langle ⟨ rangle ⟩"
    " lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ prime ′ dagger † oplus ⊕ otimes ⊗ quad \u2003 qquad \u2003"
).split(" ")
_SYMBOLS = dict(zip(_NAMES[::2], _NAMES[1::2], strict=True))
_SILENT = frozenset(
    "displaystyle textstyle scriptstyle left right big Big bigg Bigg limits nolimits rm bf it"
    " mathrm mathbf mathit mathcal mathbb mathsf text textbf textit operatorname boldsymbol bar hat"
    " vec tilde dot overline underline label nonumber hline".split()
)
_RAISED = str.maketrans("0123456789+-=()ni", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ")
_LOWERED = str.maketrans("0123456789+-=()aeoxijrn", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₒₓᵢⱼᵣₙ")
_TOKEN = re.compile(r"\\(?:[A-Za-z]+\*?|.)|[{}^_&$]|[^\\{}^_&$]+", re.DOTALL)
_SPACES = re.compile(r"\s+")


class _TooDeepError(Exception):
    """Groups are inside each other without end."""


def latex_to_text(latex: str) -> str:
    """Return a formula, or several, as text; some have more than one line."""
    if len(latex) > MAX_CHARS:
        return latex
    try:
        text = _Reader(latex).read_group(0)
    except _TooDeepError:
        return latex
    lines = (_SPACES.sub(" ", line).strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


class _Reader:
    """Walks through the tokens of a formula once."""

    def __init__(self, latex: str) -> None:
        self._tokens: list[str] = _TOKEN.findall(latex)
        self._position = 0

    def read_group(self, depth: int) -> str:
        """Read up to the brace that closes, or to the end."""
        if depth > MAX_DEPTH:
            raise _TooDeepError
        parts: list[str] = []
        while self._position < len(self._tokens):
            token = self._next()
            if token == "}":
                break
            parts.append(self._read(token, depth))
        return "".join(parts)

    def _next(self) -> str:
        token = self._tokens[self._position]
        self._position += 1
        return token

    def _read(self, token: str, depth: int) -> str:
        match token:
            case "{":
                return self.read_group(depth + 1)
            case "^":
                return _shifted(self._argument(depth), _RAISED, "^")
            case "_":
                return _shifted(self._argument(depth), _LOWERED, "_")
            case "&":
                return "  "
            case "$":
                return ""
            case _ if token.startswith("\\"):
                return self._command(token[1:].rstrip("*"), depth)
            case _:
                return _SPACES.sub(" ", token)

    def _command(self, name: str, depth: int) -> str:
        match name:
            case "frac" | "dfrac" | "tfrac":
                above, below = self._argument(depth), self._argument(depth)
                return f"{_grouped(above)}/{_grouped(below)}"
            case "sqrt":
                return f"√{_grouped(self._argument(depth))}"
            case "begin" | "end":
                self._argument(depth)
                return "\n"
            case "\\" | "newline" | "cr":
                return "\n"
            case _ if name in _SYMBOLS:
                return _SYMBOLS[name]
            case _ if name in _SILENT:
                return ""
            case _ if len(name) == 1 and not name.isalpha():
                return name if name in "{}%$&#_" else " "
            case _:
                return f" {name} " if name.isalpha() else name

    def _argument(self, depth: int) -> str:
        """What a command or a power is applied to: a group, or the next character."""
        while self._position < len(self._tokens) and self._tokens[self._position].isspace():
            self._position += 1
        if self._position >= len(self._tokens):
            return ""
        token = self._next()
        if token == "{" or token.startswith("\\"):
            return self._read(token, depth + 1).strip()
        if len(token) > 1:  # only its first character; the rest comes again
            self._position -= 1
            self._tokens[self._position] = token[1:]
        return token[0] if token not in ("}", "&", "$") else ""


def _shifted(text: str, table: dict[int, int], mark: str) -> str:
    moved = text.translate(table)
    if text and all(ord(character) in table for character in text):
        return moved
    return f"{mark}{_grouped(text)}"


def _grouped(text: str) -> str:
    return text if len(text) <= 1 or text.replace(".", "").isalnum() else f"({text})"
