"""Student's t distribution, without a library."""

from __future__ import annotations

Z95 = 1.959963984540054
# Its 97.5% quantile for 1 and 2 degrees of freedom, where the expansion below is poor.
_T_SMALL = {1: 12.7062, 2: 4.3027}


def t_quantile(degrees: int) -> float:
    """97.5% quantile of Student's t, by the Cornish-Fisher expansion around the normal.

    Exact to 0.02 from 3 degrees of freedom on, to 0.004 from 5.

    Source: Abramowitz and Stegun, 26.7.5.
    """
    if degrees in _T_SMALL:
        return _T_SMALL[degrees]
    z, v = Z95, float(degrees)
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )
