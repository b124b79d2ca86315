"""Theme files: complete, readable for everybody, and a bad one is listed rather than fatal."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import themes
from themes import Theme, load, read

OWN = load().themes
SOURCES = ("target", "draft", "lookup")

# Machado, Oliveira, Fernandes (2009), severity 1, on linear RGB.
DEFICIENCY = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(color: str) -> list[float]:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def luminance(color: str) -> float:
    r, g, b = linear(color)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(rgb: list[float]) -> list[float]:
    r, g, b = (min(max(c, 0.0), 1.0) for c in rgb)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
    f = [t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z)]
    return [116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])]


def seen(color: str, kind: str) -> list[float]:
    rgb = linear(color)
    return lab([sum(m * c for m, c in zip(row, rgb)) for row in DEFICIENCY[kind]])


def difference(a: str, b: str, kind: str) -> float:
    return sum((x - y) ** 2 for x, y in zip(seen(a, kind), seen(b, kind))) ** 0.5


def test_four_own_themes() -> None:
    assert set(OWN) == {"dspark-dark", "dspark-light", "dspark-contrast", "dspark-midnight"}
    assert load().failures == ()
    assert themes.DEFAULT in OWN


@pytest.mark.parametrize("theme", OWN.values(), ids=lambda t: t.name)
def test_contrast_floor(theme: Theme) -> None:
    for background in (theme.colors["background"], theme.colors["surface"]):
        for name in SOURCES:
            assert contrast(theme.source[name], background) >= 4.5, name
        for name, color in theme.syntax.items():
            assert contrast(color, background) >= 4.5, name
        for name in ("foreground", "error", "warning", "success", "primary"):
            assert contrast(theme.colors[name], background) >= 4.5, name
        assert contrast(theme.source["rejected"], background) >= 4.0


@pytest.mark.parametrize("theme", OWN.values(), ids=lambda t: t.name)
@pytest.mark.parametrize("kind", DEFICIENCY)
def test_sources_differ_for_every_eye(theme: Theme, kind: str) -> None:
    for a, b in itertools.combinations(SOURCES, 2):
        assert difference(theme.source[a], theme.source[b], kind) >= 30, (a, b)


@pytest.mark.parametrize("theme", OWN.values(), ids=lambda t: t.name)
def test_sources_differ_without_colour(theme: Theme) -> None:
    assert theme.styles["lookup"] == "underline"
    assert theme.styles["target"] == theme.styles["draft"] == "none"
    lightness = {name: lab([luminance(theme.source[name])] * 3)[0] for name in SOURCES}
    assert abs(lightness["target"] - lightness["draft"]) >= 10, "grey on grey, they must still be two greys"


BAD = {
    "broken": ("not = [toml", "Invalid|Unclosed|Expected|end of document"),
    "empty": ("", "lacks"),
    "bad-color": (None, "must be a colour"),
    "Bad Name": ("", "file name"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file_is_listed(tmp_path: Path, name: str) -> None:
    text, reason = BAD[name]
    good = (Path(themes.__file__).parent / "dspark-dark.toml").read_text()
    (tmp_path / f"{name}.toml").write_text(good.replace("#56b4e9", "sky") if text is None else text)
    (tmp_path / "mine.toml").write_text(good)
    found = load(tmp_path)
    assert "mine" in found.themes
    (failure,) = found.failures
    assert failure.path.endswith(f"{name}.toml")
    with pytest.raises(ValueError, match=reason):
        read(tmp_path / f"{name}.toml")


def test_variables_cannot_inject_css(tmp_path: Path) -> None:
    good = (Path(themes.__file__).parent / "dspark-dark.toml").read_text()
    (tmp_path / "evil.toml").write_text(good + '\n[variables]\nborder = "red; } Screen { display: none"\n')
    assert load(tmp_path).failures


def test_user_theme_replaces_by_name(tmp_path: Path) -> None:
    good = (Path(themes.__file__).parent / "dspark-dark.toml").read_text()
    (tmp_path / "dspark-dark.toml").write_text(good.replace("DSpark dark", "Mine"))
    assert load(tmp_path).themes["dspark-dark"].title == "Mine"
