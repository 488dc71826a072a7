"""Two plots of a run: vega-lite as plain data, drawn to PNG by vl-convert (no browser, no network, no matplotlib)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import vl_convert

from nemotron_rl.gates.measures import Metrics

Spec = dict[str, Any]
_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
_BLUE, _ORANGE, _RED, _GREY = "#3b6fb6", "#e08a2e", "#c43c39", "#6b7280"


def reward_plot(metrics: Sequence[Metrics]) -> Spec:
    """Mean reward over steps, with a band of one standard deviation of the samples, cut at 0 and 1."""
    rows = [
        {
            "step": int(step["step"]),
            "reward": step["reward/mean"],
            "low": max(0.0, step["reward/mean"] - step.get("reward/std", 0.0)),
            "high": min(1.0, step["reward/mean"] + step.get("reward/std", 0.0)),
        }
        for step in metrics
        if "reward/mean" in step
    ]
    band = {
        "mark": {"type": "area", "opacity": 0.15, "color": _BLUE},
        "encoding": {"x": _step(), "y": _y("low", "reward"), "y2": {"field": "high"}},
    }
    return _plot(
        "Mean reward of a step's samples, ± one standard deviation", rows, [band, _line("reward", "reward", _BLUE)]
    )


def logprob_plot(metrics: Sequence[Metrics], bound_max: float | None) -> Spec:
    """|trainer - engine| log-prob over steps on a log scale: maximum, 99th percentile, and the gate's bound."""
    names = {"logprob/abs_diff_max": "max", "logprob/abs_diff_p99": "p99"}
    rows = [
        # The log scale cannot show an exact 0, which equal kernels do give.
        {"step": int(step["step"]), "difference": max(step[name], 1e-9), "of samples": label}
        for step in metrics
        for name, label in names.items()
        if name in step
    ]
    y = _y("difference", "|Δ log-prob| (nats)") | {
        "scale": {"type": "log"},
        "axis": {"format": ".0e", "tickCount": 5, "labelOverlap": True},
    }
    colour = {"field": "of samples", "scale": {"domain": ["max", "p99"], "range": [_ORANGE, _BLUE]}, "title": None}
    lines = {"mark": {"type": "line", "point": True}, "encoding": {"x": _step(), "y": y, "color": colour}}
    return _plot("Log-prob difference between trainer and engine", rows, [lines, *_bound(bound_max)])


def render_png(spec: Spec, scale: float = 2.0) -> bytes:
    """The plot as a PNG file's bytes, with `scale` pixels per point."""
    return vl_convert.vegalite_to_png(spec, scale=scale)


def _plot(title: str, rows: list[dict[str, Any]], layers: list[Spec]) -> Spec:
    return {
        "$schema": _SCHEMA,
        "title": {"text": title, "anchor": "start", "fontSize": 14, "color": "#111827"},
        "width": 520,
        "height": 220,
        "background": "white",
        "data": {"values": rows},
        "layer": layers,
        "config": {
            "view": {"stroke": None},
            "axis": {"gridColor": "#e5e7eb", "labelColor": _GREY, "titleColor": _GREY},
        },
    }


def _line(field: str, title: str, colour: str) -> Spec:
    mark = {"type": "line", "color": colour, "point": {"color": colour}}
    return {"mark": mark, "encoding": {"x": _step(), "y": _y(field, title)}}


def _bound(value: float | None) -> list[Spec]:
    """A dashed line with its label; nothing without a bound."""
    if value is None:
        return []
    datum = {"datum": value}
    once: Spec = {"values": [{}]}  # of its own, or a layer is drawn once per row
    rule = {"mark": {"type": "rule", "color": _RED, "strokeDash": [6, 4]}, "encoding": {"y": datum}, "data": once}
    text = {"type": "text", "align": "right", "dy": -6, "color": _RED, "text": f"gate: max ≤ {value:g}"}
    return [rule, {"mark": text, "encoding": {"y": datum, "x": {"value": 520}}, "data": once}]


def _step() -> Spec:
    axis = {"tickMinStep": 1, "format": "d", "grid": False}
    return {"field": "step", "type": "quantitative", "title": "step", "axis": axis}


def _y(field: str, title: str) -> Spec:
    return {"field": field, "type": "quantitative", "title": title}
