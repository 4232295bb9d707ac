"""Draw lines: with matplotlib where it is installed, else as a simple drawing of our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

from taskweaver.plugin import Plugin, register_plugin, test_plugin

COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd")


@register_plugin
class LineChart(Plugin):
    """Save a chart as an artifact of the session."""

    def __call__(
        self, series: Mapping[str, Sequence[float]], title: str, file_name: str = "chart.png"
    ) -> tuple[str, str]:
        lines = {str(name): [float(value) for value in values] for name, values in series.items()}
        if not any(lines.values()):
            raise ValueError("there is nothing to draw: every series is empty")
        names = ", ".join(lines)
        try:
            import matplotlib
        except ImportError:
            self.log(
                "warning",
                "matplotlib is not installed, so this is a plain drawing without axes;"
                " install it with %pip install matplotlib",
            )
            file_name = str(Path(file_name).with_suffix(".svg"))
            _, path = self.ctx.create_artifact_path("chart", file_name, "svg", title)
            Path(path).write_text(plain_drawing(lines, title), encoding="utf-8")
        else:
            matplotlib.use("Agg")
            _, path = self.ctx.create_artifact_path("chart", file_name, "chart", title)
            self._draw(lines, title, path)
        self.log("info", f"the chart is in {Path(path).name}")
        return path, f"A chart of {names} was saved to {Path(path).name}."

    def _draw(self, lines: dict[str, list[float]], title: str, path: str) -> None:
        from matplotlib.figure import Figure

        size = (self.config.get("width_inches", 8), self.config.get("height_inches", 4))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        for name, values in lines.items():
            axes.plot(range(len(values)), values, label=name)
        axes.set_title(title)
        axes.legend()
        axes.grid(alpha=0.3)
        figure.savefig(path, dpi=120)


def plain_drawing(
    lines: dict[str, list[float]], title: str, width: int = 800, height: int = 400
) -> str:
    """Return the lines as SVG, scaled to fit, with nothing but a title and their names."""
    values = [value for line in lines.values() for value in line]
    low, high = min(values), max(values)
    scale = (height - 80) / ((high - low) or 1)
    parts = [f'<text x="20" y="25" font-size="18">{escape(title)}</text>']
    for index, (name, line) in enumerate(lines.items()):
        step = (width - 40) / max(1, len(line) - 1)
        points = " ".join(
            f"{20 + position * step:.1f},{height - 20 - (value - low) * scale:.1f}"
            for position, value in enumerate(line)
        )
        color = COLORS[index % len(COLORS)]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}"/>')
        parts.append(f'<text x="{20 + 150 * index}" y="45" fill="{color}">{escape(name)}</text>')
    size = f'width="{width}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(parts)}</svg>\n'


@test_plugin(name="saves a file", description="the chart is there and is not empty")
def saves_a_file(line_chart: Callable[..., tuple[str, str]]) -> None:
    """Two short lines."""
    path, _ = line_chart({"a": [1, 2, 3], "b": [3, 2, 1]}, "Test")
    assert Path(path).stat().st_size > 0
