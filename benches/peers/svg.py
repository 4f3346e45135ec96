"""The few SVG shapes that the picture needs."""

from xml.sax.saxutils import escape


class Drawing:
    """Shapes on white, so that they are read on dark pages too."""

    def __init__(self, width):
        self.width, self.parts = width, []

    def rect(self, x, y, width, height, fill):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>')

    def line(self, x1, y1, x2, y2):
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#111827" stroke-dasharray="3 3"/>'
        )

    def label(self, x, y, text, anchor="start", bold=False, small=False):
        style = f'text-anchor="{anchor}" font-size="{10 if small else 12}"' + ' font-weight="600"' * bold
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>')

    def text(self, height):
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height:.0f}" '
        head += 'font-family="system-ui, sans-serif" fill="#111827">'
        back = f'<rect width="{self.width}" height="{height:.0f}" fill="#ffffff"/>'
        return "\n".join([head, back, *self.parts, "</svg>"]) + "\n"
