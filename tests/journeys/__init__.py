"""User journeys: what README and docs tell an installed user, run from a fresh environment that has only the wheel."""
