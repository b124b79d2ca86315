"""Statistical helpers for tests: the self-test's."""

from engine.diagnostics.self_test.chi_square import chi_square_p, gamma_q

__all__ = ["chi_square_p", "gamma_q"]
