"""The comparison job, a Faust app: joins comparisons of primary and shadow with late labels, and evaluates both models."""
