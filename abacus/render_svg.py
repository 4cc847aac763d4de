"""Scenes as SVG text that stands alone: vector pictures for documents and browsers."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from abacus.render_shapes import Box, Polygon, Scene, Shape, Text, text_width

#: The pictures' own font is rarely installed; these are of about its width.
_FONTS = "Aileron, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"


def scene_svg(scene: Scene, title: str) -> str:
    """The scene as an SVG document; the title is what screen readers say."""
    size = f'width="{scene.width}" height="{scene.height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        f'viewBox="0 0 {scene.width} {scene.height}" font-family="{_FONTS}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect {size} fill="{scene.background}"/>',
    ]
    for x, y, sprite in scene.sprites:
        lines.append(f'<g transform="translate({x} {y})">')
        lines.extend(_element(shape) for shape in sprite.shapes)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _element(shape: Shape) -> str:
    match shape:
        case Box():
            return _box(shape)
        case Polygon():
            points = " ".join(f"{x:g},{y:g}" for x, y in shape.points)
            return f'<polygon points="{points}" fill="{shape.fill}"/>'
        case Text():
            return _text(shape)


def _box(box: Box) -> str:
    # SVG draws an outline half inside and half outside: half of it is taken off.
    inset = box.stroke / 2
    attributes = {
        "x": f"{box.x + inset:g}",
        "y": f"{box.y + inset:g}",
        "width": f"{box.width - box.stroke:g}",
        "height": f"{box.height - box.stroke:g}",
        "rx": f"{max(0.0, box.radius - inset):g}",
        "fill": box.fill or "none",
    }
    if box.outline:
        attributes |= {"stroke": box.outline, "stroke-width": f"{box.stroke:g}"}
    return f"<rect {_written(attributes)}/>"


def _text(text: Text) -> str:
    attributes = {
        "x": f"{text.x:g}",
        "y": f"{text.y:g}",
        "font-size": str(text.size),
        "fill": text.fill,
        "text-anchor": text.anchor,
    }
    if len(text.text) > 1:
        # Whatever font is found, the text takes the room that the layout gave it.
        attributes["textLength"] = f"{text_width(text.text, text.size):.1f}"
        attributes["lengthAdjust"] = "spacingAndGlyphs"
    if text.weight:
        attributes |= {"stroke": text.fill, "stroke-width": f"{text.weight:g}"}
    return f"<text {_written(attributes)}>{escape(text.text)}</text>"


def _written(attributes: dict[str, str]) -> str:
    return " ".join(f"{name}={quoteattr(value)}" for name, value in attributes.items())
