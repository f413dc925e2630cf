"""What is to be seen on the axes of a drawing by matplotlib, as plain values. Sizes, places of
legends and the like are for eyes.
"""


def drawn(draw, data):
    """What a function draws of data onto an empty figure: one `seen` for each of its axes."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    draw(data, figure)
    return [seen(axes) for axes in figure.axes]


def seen(axes):
    """All that has to do with data, and words."""
    legend = axes.get_legend()
    return {
        "title": axes.get_title(loc="left") or axes.get_title(),
        "labels": (axes.get_xlabel(), axes.get_ylabel()),
        "scales": (axes.get_xscale(), axes.get_yscale()),
        "names": [label.get_text() for label in axes.get_xticklabels()],
        "ticks": [round(float(at), 6) for at in axes.get_xticks()],
        "lines": {one.get_label(): one.get_xydata().round(6).tolist() for one in axes.lines},
        "colors": {one.get_label(): one.get_color() for one in axes.lines},
        "styles": {one.get_label(): (one.get_marker(), one.get_linestyle()) for one in axes.lines},
        "bars": {
            group.get_label(): [
                (round(bar.get_center()[0], 6), round(bar.get_y(), 6), round(bar.get_height(), 6))
                for bar in group
            ]
            for group in axes.containers
            if hasattr(group, "patches")
        },
        "points": {
            group.get_label(): _points(group)
            for group in axes.containers
            if not hasattr(group, "patches") and group.lines[0] is not None
        },
        "markers": {
            group.get_label(): group.lines[0].get_marker()
            for group in axes.containers
            if not hasattr(group, "patches") and group.lines[0] is not None
        },
        "bands": [_heights(one) for one in axes.collections if len(one.get_paths()) == 1],
        "texts": [(one.get_text(), getattr(one, "xy", one.get_position())) for one in axes.texts],
        "legend": [one.get_text() for one in legend.get_texts()] if legend else [],
        "limits": (axes.get_xlim(), axes.get_ylim()),
    }


def _points(errorbar):
    """[(x, y, from, to)] of points with whiskers."""
    line, _, (whiskers,) = errorbar.lines
    return [
        (*(round(float(v), 6) for v in at), *(round(float(end[1]), 6) for end in whisker))
        for at, whisker in zip(line.get_xydata(), whiskers.get_segments(), strict=True)
    ]


def _heights(band):
    """The y values that the edge of a filled area goes through, each once."""
    (path,) = band.get_paths()
    return sorted({round(float(y), 6) for _, y in path.vertices})
