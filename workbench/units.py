"""Units: all times are integer nanoseconds on the run's reference clock, all sizes are bytes."""

from __future__ import annotations

US_NS = 1_000
MS_NS = 1_000_000
S_NS = 1_000_000_000
KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


def format_ns(value_ns: int | float | None) -> str:
    """A duration with a unit a person reads at once; an em-dash-free "n/a" when it is not known.

    >>> format_ns(1_530_000_000), format_ns(12_300_000), format_ns(840), format_ns(None), format_ns(999_600_000)
    ('1.53 s', '12.3 ms', '840 ns', 'n/a', '1 s')
    """
    if value_ns is None:
        return "n/a"
    size = abs(value_ns)
    for unit_ns, unit in ((S_NS, "s"), (MS_NS, "ms"), (US_NS, "us")):
        if size >= 0.9995 * unit_ns:  # what three digits would round up to the unit
            return f"{value_ns / unit_ns:.3g} {unit}"
    return f"{value_ns:.0f} ns"


def format_bytes(value_bytes: int | float | None) -> str:
    """A size with a binary unit, or "n/a" when it is not known.

    >>> format_bytes(247_680), format_bytes(12), format_bytes(None)
    ('242 KiB', '12 B', 'n/a')
    """
    if value_bytes is None:
        return "n/a"
    size = abs(value_bytes)
    for unit_bytes, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= 0.9995 * unit_bytes:
            return f"{value_bytes / unit_bytes:.3g} {unit}"
    return f"{value_bytes:.0f} B"
