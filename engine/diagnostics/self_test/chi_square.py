"""A chi-square test without a scientific library: for the self-test, and for the tests."""

from __future__ import annotations

import math
from collections.abc import Sequence


def chi_square_p(observed: Sequence[float], expected: Sequence[float]) -> float:
    """p value of observed counts against expected counts; cells that expect fewer than 5 are pooled.

    A count where nothing is expected makes it 0: the sample left the support.
    """
    if any(o > 0 and e <= 0 for o, e in zip(observed, expected, strict=True)):
        return 0.0
    big = [(o, e) for o, e in zip(observed, expected, strict=True) if e >= 5]
    rest_o = sum(o for o, e in zip(observed, expected, strict=True) if 0 < e < 5)
    rest_e = sum(e for e in expected if 0 < e < 5)
    if rest_e >= 5:
        big.append((rest_o, rest_e))
    if len(big) < 2:
        return 1.0
    statistic = sum((o - e) ** 2 / e for o, e in big)
    return gamma_q((len(big) - 1) / 2, statistic / 2)


def gamma_q(a: float, x: float) -> float:
    """Regularised upper incomplete gamma function (Numerical Recipes 6.2: series below a + 1, fraction above)."""
    if x <= 0:
        return 1.0
    if x < a + 1:
        term = total = 1 / a
        n = a
        while abs(term) > abs(total) * 1e-14:
            n += 1
            term *= x / n
            total += term
        return 1 - total * math.exp(-x + a * math.log(x) - math.lgamma(a))
    b = x + 1 - a
    c, d = 1e300, 1 / b
    h = d
    for i in range(1, 10_000):
        step = -i * (i - a)
        b += 2
        d = 1 / (step * d + b)
        c = b + step / c
        h *= d * c
        if abs(d * c - 1) < 1e-14:
            break
    return h * math.exp(-x + a * math.log(x) - math.lgamma(a))
